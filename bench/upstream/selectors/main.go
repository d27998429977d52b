// Command selectors answers device selectors with Kubernetes' own CEL environment, as a peer to compare with.
//
// It reads one JSON request a line from standard input: expression, driver, attributes, capacity,
// allowMultipleAllocations, new (the environment for expressions that are written, with the two gates), repeat. It
// writes one JSON answer a line: compile (why the expression is refused) or match, error, cost, maxCost; with repeat
// the seconds that so many evaluations took. With language the expression is any, over no device, and the answer
// carries type and value: [kind, content], content as text where JSON has no exact form.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type request struct {
	Expression               string                                                  `json:"expression"`
	Driver                   string                                                  `json:"driver"`
	Attributes               map[resourcev1.QualifiedName]resourcev1.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourcev1.QualifiedName]resource.Quantity          `json:"capacity"`
	AllowMultipleAllocations bool                                                    `json:"allowMultipleAllocations"`
	New                      bool                                                    `json:"new"`
	ListAttributes           bool                                                    `json:"listAttributes"`
	ConsumableCapacity       bool                                                    `json:"consumableCapacity"`
	Repeat                   int                                                     `json:"repeat"`
	Language                 bool                                                    `json:"language"`
}

type answer struct {
	Compile string  `json:"compile,omitempty"`
	Match   *bool   `json:"match,omitempty"`
	Error   string  `json:"error,omitempty"`
	Cost    uint64  `json:"cost"`
	MaxCost string  `json:"maxCost,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Type    string  `json:"type,omitempty"`
	Value   []any   `json:"value,omitempty"`
}

// language is the environment of device selectors without the device.
var language = func() *celgo.Env {
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := set.StoredExpressionsEnv().Extend(ext.Bindings(ext.BindingsVersion(0)))
	if err != nil {
		panic(err)
	}
	return env
}()

func evaluate(text string) (found answer) {
	defer func() {
		if problem := recover(); problem != nil {
			found = answer{Error: fmt.Sprintf("panic: %v", problem)}
		}
	}()
	ast, issues := language.Compile(text)
	if issues.Err() != nil {
		return answer{Compile: issues.Err().Error()}
	}
	program, err := language.Program(ast)
	if err != nil {
		return answer{Compile: "program instantiation failed: " + err.Error()}
	}
	found.Type = ast.OutputType().String()
	value, _, err := program.Eval(map[string]any{})
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.Value = plain(value)
	return found
}

func plain(value ref.Val) []any {
	switch v := value.(type) {
	case types.Int:
		return []any{"int", strconv.FormatInt(int64(v), 10)}
	case types.Uint:
		return []any{"uint", strconv.FormatUint(uint64(v), 10)}
	case types.Double:
		return []any{"double", strconv.FormatFloat(float64(v), 'g', -1, 64)}
	case types.Bool:
		return []any{"bool", bool(v)}
	case types.String:
		return []any{"string", string(v)}
	case types.Bytes:
		return []any{"bytes", base64.StdEncoding.EncodeToString([]byte(v))}
	case types.Null:
		return []any{"null"}
	case types.Duration:
		return []any{"duration", strconv.FormatInt(v.Duration.Nanoseconds(), 10)}
	case types.Timestamp:
		return []any{"timestamp", strconv.FormatInt(v.Time.Unix(), 10), v.Time.Nanosecond()}
	case *types.Optional:
		if !v.HasValue() {
			return []any{"optional"}
		}
		return []any{"optional", plain(v.GetValue())}
	case *types.Type:
		return []any{"type", v.TypeName()}
	case traits.Mapper:
		entries := []any{}
		for keys := v.Iterator(); keys.HasNext() == types.True; {
			key := keys.Next()
			entries = append(entries, []any{plain(key), plain(v.Get(key))})
		}
		return []any{"map", entries}
	case traits.Lister:
		elements := []any{}
		for all := v.Iterator(); all.HasNext() == types.True; {
			elements = append(elements, plain(all.Next()))
		}
		return []any{"list", elements}
	}
	return []any{"other", value.Type().TypeName()}
}

func answerTo(r request) answer {
	if r.Language {
		return evaluate(r.Expression)
	}
	kind := environment.StoredExpressions
	if r.New {
		kind = environment.NewExpressions
	}
	// Evaluations are never cut short: what they cost is part of the answer.
	unlimited := uint64(math.MaxUint64 / 2)
	compiler := cel.GetCompiler(cel.Features{
		EnableConsumableCapacity: r.ConsumableCapacity,
		EnableListTypeAttributes: r.ListAttributes,
	})
	compiled := compiler.CompileCELExpression(r.Expression, cel.Options{EnvType: &kind, CostLimit: &unlimited})
	if compiled.Error != nil {
		return answer{Compile: compiled.Error.Error()}
	}
	device := cel.Device{
		Driver:                   r.Driver,
		AllowMultipleAllocations: &r.AllowMultipleAllocations,
		Attributes:               r.Attributes,
		Capacity:                 map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{},
	}
	for name, value := range r.Capacity {
		device.Capacity[name] = resourcev1.DeviceCapacity{Value: value}
	}
	found := answer{MaxCost: fmt.Sprint(compiled.MaxCost)}
	match, details, err := compiled.DeviceMatches(context.Background(), device)
	if err != nil {
		found.Error = err.Error()
	} else {
		found.Match = &match
	}
	if details != nil && details.ActualCost() != nil {
		found.Cost = *details.ActualCost()
	}
	start := time.Now()
	for range r.Repeat {
		_, _, _ = compiled.DeviceMatches(context.Background(), device)
	}
	found.Seconds = time.Since(start).Seconds()
	return found
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, "selectors: not a request:", err)
			os.Exit(2)
		}
		if err := out.Encode(answerTo(r)); err != nil {
			os.Exit(1)
		}
	}
}
