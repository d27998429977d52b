// An operator written with controller-runtime: a Bridge gets a ConfigMap with its lanes; webhooks default and check it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const finalizer = "bridges.operators.example.com/finalizer"

var kind = schema.GroupVersionKind{Group: "operators.example.com", Version: "v1", Kind: "Bridge"}

type reconciler struct {
	client.Client
	version string
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	bridge := &unstructured.Unstructured{}
	bridge.SetGroupVersionKind(kind)
	if err := r.Get(ctx, request.NamespacedName, bridge); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if bridge.GetDeletionTimestamp() != nil {
		left := &corev1.ConfigMap{}
		left.Name, left.Namespace = bridge.GetName()+"-gone", bridge.GetNamespace()
		if err := r.Create(ctx, left); client.IgnoreAlreadyExists(err) != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(bridge, finalizer)
		return ctrl.Result{}, r.Update(ctx, bridge)
	}
	if controllerutil.AddFinalizer(bridge, finalizer) {
		if err := r.Update(ctx, bridge); err != nil {
			return ctrl.Result{}, err
		}
	}
	lanes, _, _ := unstructured.NestedInt64(bridge.Object, "spec", "lanes")
	plan := &corev1.ConfigMap{}
	plan.Name, plan.Namespace = bridge.GetName()+"-plan", bridge.GetNamespace()
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, plan, func() error {
		plan.Data = map[string]string{"lanes": fmt.Sprint(lanes), "version": r.version}
		return controllerutil.SetControllerReference(bridge, plan, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	_ = unstructured.SetNestedField(bridge.Object, lanes, "status", "lanes")
	_ = unstructured.SetNestedField(bridge.Object, bridge.GetGeneration(), "status", "observedGeneration")
	return ctrl.Result{}, r.Status().Update(ctx, bridge)
}

func lanesOf(request admission.Request) (map[string]any, float64, bool) {
	object := map[string]any{}
	_ = json.Unmarshal(request.Object.Raw, &object)
	spec, _ := object["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
		object["spec"] = spec
	}
	lanes, found := spec["lanes"].(float64)
	return object, lanes, found
}

func fill(_ context.Context, request admission.Request) admission.Response {
	object, _, found := lanesOf(request)
	if found {
		return admission.Allowed("")
	}
	object["spec"].(map[string]any)["lanes"] = 2
	changed, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

func check(_ context.Context, request admission.Request) admission.Response {
	if _, lanes, _ := lanesOf(request); lanes > 8 {
		return admission.Denied(fmt.Sprintf("a bridge has at most 8 lanes, not %v", lanes))
	}
	return admission.Allowed("").WithWarnings("looked at by version " + os.Getenv("VERSION"))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		HealthProbeBindAddress:        ":8081",
		LeaderElection:                true,
		LeaderElectionID:              "bridges.operators.example.com",
		LeaderElectionReleaseOnCancel: true,
		WebhookServer:                 webhook.NewServer(webhook.Options{Port: 9443, CertDir: "/certs"}),
	})
	must(err)
	bridge := &unstructured.Unstructured{}
	bridge.SetGroupVersionKind(kind)
	must(ctrl.NewControllerManagedBy(manager).Named("bridges").For(bridge).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient(), os.Getenv("VERSION")}))
	manager.GetWebhookServer().Register("/fill", &webhook.Admission{Handler: admission.HandlerFunc(fill)})
	manager.GetWebhookServer().Register("/check", &webhook.Admission{Handler: admission.HandlerFunc(check)})
	must(manager.AddHealthzCheck("ping", healthz.Ping))
	must(manager.AddReadyzCheck("webhooks", manager.GetWebhookServer().StartedChecker()))
	must(manager.Start(ctrl.SetupSignalHandler()))
}
