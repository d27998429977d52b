// Upstream's field manager (server-side apply, managedFields) and strategic merge patch as a peer for tests.
//
// Reads one JSON request a line, answers one JSON value a line:
//
//	{"GVK": [group, version, kind], "Steps": [{"Op": "apply"|"update", "Manager", "Subresource", "Force", "Object"}]}
//	    -> [the object after each step, or {"error", "causes"}]
//	{"GVK": [...], "Current": {...}, "Patch": {...}}
//	{"GVK": [...], "Current": {...}, "Original": {...}, "Modified": {...}}   (the patch that kubectl apply would send)
//	    -> {"patch", "result"} or {"error"}
//
// `make peers` builds it; DRAGOMAN_TEST_UPSTREAM_API=PATH names one made elsewhere.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

type step struct {
	Op, Manager, Subresource string
	Force                    bool
	Object                   map[string]any
}

type request struct {
	GVK                                [3]string
	Steps                              []step
	Current, Patch, Original, Modified json.RawMessage
}

// What exists has a uid: the field manager tells creation from updates by it.
const uid = types.UID("u")

var converter = applyconfigurations.NewTypeConverter(scheme.Scheme)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	for in.Scan() {
		var asked request
		check(json.Unmarshal(in.Bytes(), &asked))
		gvk := schema.GroupVersionKind{Group: asked.GVK[0], Version: asked.GVK[1], Kind: asked.GVK[2]}
		var answer any
		if asked.Current != nil {
			answer = patch(gvk, asked)
		} else {
			answer = history(gvk, asked.Steps)
		}
		text, err := json.Marshal(answer)
		check(err)
		fmt.Println(string(text))
	}
}

func history(gvk schema.GroupVersionKind, steps []step) []any {
	live := blank(gvk)
	answers := []any{}
	for _, one := range steps {
		next, err := write(gvk, live, one)
		if err != nil {
			answers = append(answers, refusal(err))
			continue
		}
		next.GetObjectKind().SetGroupVersionKind(gvk)
		setUID(next, uid)
		live = next
		answers = append(answers, live.DeepCopyObject())
	}
	return answers
}

func write(gvk schema.GroupVersionKind, live runtime.Object, one step) (runtime.Object, error) {
	manager, err := managedfields.NewDefaultFieldManager(
		converter, scheme.Scheme, scheme.Scheme, scheme.Scheme, gvk, gvk.GroupVersion(), one.Subresource, nil)
	check(err)
	if one.Op == "apply" {
		return manager.Apply(live.DeepCopyObject(), &unstructured.Unstructured{Object: one.Object}, one.Manager, one.Force)
	}
	sent := blank(gvk)
	text, err := json.Marshal(one.Object)
	check(err)
	check(json.Unmarshal(text, sent))
	accessor, err := meta.Accessor(live)
	check(err)
	setUID(sent, accessor.GetUID())
	return manager.Update(live.DeepCopyObject(), sent, one.Manager)
}

func refusal(err error) map[string]any {
	answer := map[string]any{"error": err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		answer["causes"] = status.Status().Details.Causes
	}
	return answer
}

func patch(gvk schema.GroupVersionKind, asked request) map[string]any {
	typed := blank(gvk)
	sent := []byte(asked.Patch)
	if asked.Patch == nil {
		lookup, err := strategicpatch.NewPatchMetaFromStruct(typed)
		check(err)
		sent, err = strategicpatch.CreateThreeWayMergePatch(asked.Original, asked.Modified, asked.Current, lookup, true)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
	}
	result, err := strategicpatch.StrategicMergePatch(asked.Current, sent, typed)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"patch": json.RawMessage(sent), "result": json.RawMessage(result)}
}

func blank(gvk schema.GroupVersionKind) runtime.Object {
	object, err := scheme.Scheme.New(gvk)
	check(err)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return object
}

func setUID(object runtime.Object, value types.UID) {
	accessor, err := meta.Accessor(object)
	check(err)
	accessor.SetUID(value)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
