// Command selectors answers device selectors with Kubernetes' own CEL environment, as a peer to compare with.
//
// It reads one JSON request a line from standard input: expression, driver, attributes, capacity,
// allowMultipleAllocations, new (the environment for expressions that are written, with the two gates), repeat. It
// writes one JSON answer a line: compile (why the expression is refused) or match, error, cost, maxCost; with repeat
// the seconds that so many evaluations took.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

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
}

type answer struct {
	Compile string  `json:"compile,omitempty"`
	Match   *bool   `json:"match,omitempty"`
	Error   string  `json:"error,omitempty"`
	Cost    uint64  `json:"cost"`
	MaxCost string  `json:"maxCost,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

func answerTo(r request) answer {
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
