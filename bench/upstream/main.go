// Command upstream answers allocation cases with Kubernetes' own structured allocator, as a peer to compare with.
//
// It reads one JSON case a line from standard input and writes one JSON answer a line to standard output. A case has
// the keys of the allocator vectors (features, node or nodes, claims, classes, slices, allocatedDevices,
// allocatedShares, consumedCapacity) and optionally timeoutSeconds (default 10, for each node). The answer carries,
// for each node, the allocation results, the error text and the seconds that Allocate took, and for the case the
// seconds of the set-up (NewAllocator) and the processor seconds of everything (to be measured with GOMAXPROCS=1).
// With brief the results are left out. warm asks for one call that is not measured, on the first node.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type device struct {
	Driver   string                                         `json:"driver"`
	Pool     string                                         `json:"pool"`
	Device   string                                         `json:"device"`
	ShareID  types.UID                                      `json:"shareID"`
	Consumed map[resourcev1.QualifiedName]resource.Quantity `json:"consumed"`
}

func (d device) id() structured.DeviceID {
	return structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
}

type request struct {
	Name             string                      `json:"name"`
	Features         structured.Features         `json:"features"`
	Node             *corev1.Node                `json:"node"`
	Nodes            []*corev1.Node              `json:"nodes"`
	Claims           []*resourcev1.ResourceClaim `json:"claims"`
	Classes          []*resourcev1.DeviceClass   `json:"classes"`
	Slices           []*resourcev1.ResourceSlice `json:"slices"`
	AllocatedDevices []device                    `json:"allocatedDevices"`
	AllocatedShares  []device                    `json:"allocatedShares"`
	ConsumedCapacity []device                    `json:"consumedCapacity"`
	TimeoutSeconds   float64                     `json:"timeoutSeconds"`
	Brief            bool                        `json:"brief"`
	Warm             bool                        `json:"warm"`
}

type nodeAnswer struct {
	Node     string                        `json:"node"`
	Results  []resourcev1.AllocationResult `json:"results"`
	Error    string                        `json:"error"`
	OnlyNode bool                          `json:"onlyNode"`
	TimedOut bool                          `json:"timedOut"`
	Fits     bool                          `json:"fits"`
	Seconds  float64                       `json:"seconds"`
}

type answer struct {
	Name         string       `json:"name"`
	SetupSeconds float64      `json:"setupSeconds"`
	CPUSeconds   float64      `json:"cpuSeconds"`
	Error        string       `json:"error"`
	Nodes        []nodeAnswer `json:"nodes"`
}

type classes map[string]*resourcev1.DeviceClass

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	all := make([]*resourcev1.DeviceClass, 0, len(c))
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, fmt.Errorf("class %s not found", name)
}

func decide(ctx context.Context, in request) (out answer) {
	out.Name = in.Name
	defer func() {
		if problem := recover(); problem != nil {
			out.Error = fmt.Sprintf("panic: %v\n%s", problem, debug.Stack())
		}
	}()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, held := range in.AllocatedDevices {
		state.AllocatedDevices.Insert(held.id())
	}
	for _, share := range in.AllocatedShares {
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(share.id(), &share.ShareID))
	}
	for _, part := range in.ConsumedCapacity {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(part.id(), part.Consumed))
	}
	lister := classes{}
	for _, class := range in.Classes {
		lister[class.Name] = class
	}
	cache := cel.NewCache(10, cel.Features{
		EnableConsumableCapacity: in.Features.ConsumableCapacity,
		EnableListTypeAttributes: in.Features.ListTypeAttributes,
	})
	nodes := in.Nodes
	if in.Node != nil {
		nodes = append(nodes, in.Node)
	}
	if in.Warm && len(nodes) > 0 {
		if warm, err := structured.NewAllocator(ctx, in.Features, state, lister, in.Slices, cache); err == nil {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = warm.Allocate(limited, nodes[0], in.Claims)
			cancel()
		}
	}
	cpu := processorSeconds()
	begin := time.Now()
	allocator, err := structured.NewAllocator(ctx, in.Features, state, lister, in.Slices, cache)
	out.SetupSeconds = time.Since(begin).Seconds()
	if err != nil {
		out.Error = err.Error()
		return out
	}
	timeout := in.TimeoutSeconds
	if timeout == 0 {
		timeout = 10
	}
	for _, node := range nodes {
		limited, cancel := context.WithTimeout(ctx, time.Duration(timeout*float64(time.Second)))
		begin := time.Now()
		results, err := allocator.Allocate(limited, node, in.Claims)
		one := nodeAnswer{Node: node.Name, Results: results, Fits: err == nil && results != nil, Seconds: time.Since(begin).Seconds()}
		if in.Brief {
			one.Results = nil
		}
		cancel()
		if err != nil {
			one.Error = err.Error()
			one.OnlyNode = errors.Is(err, structured.ErrFailedAllocationOnNode)
			one.TimedOut = errors.Is(err, context.DeadlineExceeded)
		}
		out.Nodes = append(out.Nodes, one)
	}
	out.CPUSeconds = processorSeconds() - cpu
	return out
}

func processorSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func main() {
	// The one variant that knows every feature and sorts pools; the others differ in order where features are off.
	structured.EnableAllocators("experimental")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<30)
	reply := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var in request
		var out answer
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			out.Error = "decode: " + err.Error()
		} else {
			out = decide(context.Background(), in)
		}
		if err := reply.Encode(out); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
