// Package seam starts a part of Dragoman where a test of Kubernetes starts its own.
//
// SEAM_PARTS names the parts that are Dragoman's, separated by commas; SEAM_PYTHON runs them, in the folder SEAM_ROOT;
// SEAM_LOGS is the folder for what they print.
package seam

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
)

// Test is what is needed of a test.
type Test interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// order is what a part is told, as one line of JSON.
type order struct {
	Part     string          `json:"part"`
	Server   string          `json:"server"`
	Name     string          `json:"name"`
	Insecure bool            `json:"insecure"`
	CA       []byte          `json:"ca"`
	Cert     []byte          `json:"cert"`
	Key      []byte          `json:"key"`
	Token    string          `json:"token"`
	Gates    map[string]bool `json:"gates"`
	Settings string          `json:"settings"`
}

var count atomic.Int64

// Start starts the part and gives what ends it; nil where the part is Kubernetes' own.
func Start(t Test, part string, config *rest.Config, settings string) func(string) {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("SEAM_PARTS"), ","), part) {
		return nil
	}
	line, err := json.Marshal(orderOf(t, part, config, settings))
	if err != nil {
		t.Fatalf("seam: %v", err)
	}
	name := filepath.Join(os.Getenv("SEAM_LOGS"), fmt.Sprintf("%s-%d.log", part, count.Add(1)))
	log, err := os.Create(name)
	if err != nil {
		t.Fatalf("seam: %v", err)
	}
	cmd := exec.Command(os.Getenv("SEAM_PYTHON"), "-m", "tests.real.upstream.part")
	cmd.Dir, cmd.Stderr = os.Getenv("SEAM_ROOT"), log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("seam: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("seam: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("seam: %s: %v", part, err)
	}
	t.Logf("seam: %s is process %d, log %s", part, cmd.Process.Pid, name)
	_, _ = in.Write(append(line, '\n'))
	ready := make(chan bool, 1)
	go func() {
		said, _ := bufio.NewReader(out).ReadString('\n')
		ready <- strings.TrimSpace(said) == "ready"
		_, _ = io.Copy(log, out)
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatalf("seam: %s ended, see %s", part, name)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("seam: %s is not ready, see %s", part, name)
	}
	return func(string) { // it ends when its standard input does
		_ = in.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
		}
		_ = log.Close()
	}
}

func orderOf(t Test, part string, config *rest.Config, settings string) order {
	loaded := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		t.Fatalf("seam: %v", err)
	}
	gates := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		gates[string(name)] = utilfeature.DefaultFeatureGate.Enabled(name)
	}
	server := loaded.Host
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	return order{
		part, server, loaded.ServerName, loaded.Insecure,
		loaded.CAData, loaded.CertData, loaded.KeyData, loaded.BearerToken, gates, settings,
	}
}
