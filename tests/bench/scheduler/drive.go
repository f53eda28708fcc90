// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	address = "127.0.0.1:9410"
	settle  = 20 * time.Second
	binders = 16 // concurrent bindings
)

// runningScheduler is a tessera-scheduler that runs as a child and is ready.
type runningScheduler struct {
	cmd *exec.Cmd
}

// start runs tessera-scheduler, and prints how long it took to become ready.
func start(ctx context.Context, o options, kubeconfig string) (*runningScheduler, error) {
	cmd := exec.CommandContext(ctx, o.program, "--kubeconfig", kubeconfig, "--address", address,
		"--metrics-address", "", "--leader-elect-resource-namespace", "kube-system", "--insecure-plain-http")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &runningScheduler{cmd: cmd}
	for {
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(begin) > time.Minute {
			return nil, fmt.Errorf("tessera-scheduler is not ready after a minute")
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Printf("start to ready: %.2f s, CPU %s, %s\n", time.Since(begin).Seconds(), s.cpu(), s.memory())
	return s, nil
}

func (s *runningScheduler) status(field string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(rest)
		}
	}
	return "?"
}

func (s *runningScheduler) memory() string {
	return "RSS " + s.status("VmRSS") + ", at most " + s.status("VmHWM")
}

// cpu is the processor time of its threads in seconds.
func (s *runningScheduler) cpu() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return fmt.Sprintf("%.2f s", float64(user+system)/100)
}

func (s *runningScheduler) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
}

// serve runs tessera-scheduler until its standard input ends.
func serve(ctx context.Context, o options, kubeconfig string) error {
	s, err := start(ctx, o, kubeconfig)
	if err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	fmt.Printf("tessera-scheduler: %s\n", s.memory())
	response, err := http.Get("http://" + address + "/metrics")
	if err == nil {
		text, _ := io.ReadAll(response.Body)
		report("tessera-scheduler", string(text), []metric{
			{"tessera_scheduler_request_duration_seconds", `verb="filter"`, "filter, without sockets"},
			{"tessera_scheduler_request_duration_seconds", `verb="prioritize"`, "prioritize, without sockets"},
			{"tessera_scheduler_request_duration_seconds", `verb="bind"`, "bind, with the API server's part"}})
	}
	s.stop()
	return err
}

// post sends a body and reads the answer to its end into the buffer.
func post(client *http.Client, verb string, body []byte, into *bytes.Buffer) error {
	response, err := client.Post("http://"+address+"/v1/extender/"+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	into.Reset()
	if _, err = into.ReadFrom(response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", verb, response.Status, into.Bytes())
	}
	return err
}

func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
}

// driveExtender calls the extender as kube-scheduler does, for one pod after the other: first without
// bindings, so that the times exclude the API server's work, then with bindings at the same time.
func driveExtender(ctx context.Context, o options, kubeconfig string) error {
	s, err := start(ctx, o, kubeconfig)
	if err != nil {
		return err
	}
	defer s.stop()
	texts, err := readWaiting(kubeconfig)
	if err != nil {
		return err
	}
	// The API server still collects the garbage of 25,000 writes.
	time.Sleep(settle)
	debug.SetGCPercent(1000)
	fmt.Printf("%6s %8s %8s %8s %8s %8s %8s %8s\n", "nodes", "filter", "priorit.", "both p50", "p99", "bind p50", "p99", "pods/s")
	half := len(texts) / 2
	for _, round := range []struct {
		nodes int
		pods  []waitingPod
	}{{o.nodes, texts[:half]}, {min(1213, o.nodes), texts[half:]}} {
		for _, bind := range []bool{false, true} {
			if err := s.round(round.nodes, round.pods, bind); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s, CPU %s\n", s.memory(), s.cpu())
	return nil
}

// waitingFile returns the path of the file with the waiting pods, as the API server returns them.
func waitingFile(kubeconfig string) string {
	return filepath.Join(filepath.Dir(kubeconfig), "waiting.json")
}

func readWaiting(kubeconfig string) ([]waitingPod, error) {
	content, err := os.ReadFile(waitingFile(kubeconfig))
	if err != nil {
		return nil, err
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, err
	}
	var pods []waitingPod
	for _, text := range list.Items {
		var pod struct{ Metadata struct{ Name, UID string } }
		if err := json.Unmarshal(text, &pod); err != nil {
			return nil, err
		}
		pods = append(pods, waitingPod{text, pod.Metadata.Name, pod.Metadata.UID})
	}
	return pods, nil
}

type waitingPod struct {
	text []byte
	name string
	uid  string
}

// orders returns NodeNames in several orders, because kube-scheduler's workers change the order each time.
func orders(nodes int) [][]byte {
	var all [][]byte
	for range 8 {
		var names []string
		for _, n := range rand.Perm(nodes) {
			names = append(names, nodeName(n))
		}
		all = append(all, []byte(encode(names)))
	}
	return all
}

// times of one round, by verb.
type times struct {
	filter, prioritize, both, bind []time.Duration
	failed                         error // the first binding that failed
}

func (t *times) print(nodes int, pods int, took time.Duration) {
	fmt.Printf("%6d %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.0f\n", nodes, quantile(t.filter, .5), quantile(t.prioritize, .5),
		quantile(t.both, .5), quantile(t.both, .99), quantile(t.bind, .5), quantile(t.bind, .99), float64(pods)/took.Seconds())
}

type binding struct {
	pod  waitingPod
	node string
}

// round calls the extender for each pod. Without bindings only the extender and this program work.
func (s *runningScheduler) round(nodes int, pods []waitingPod, binds bool) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: binders + 1}}
	lists := orders(nodes)
	queue := make(chan binding, binders)
	var t times
	var mutex sync.Mutex
	var all sync.WaitGroup
	for range binders {
		all.Go(func() { t.bindFrom(queue, client, &mutex) })
	}
	begin := time.Now()
	for i, pod := range pods {
		node, err := t.decide(client, pod, lists[i%len(lists)])
		if err != nil {
			return err
		}
		if binds {
			queue <- binding{pod, node}
		}
	}
	close(queue)
	all.Wait()
	t.print(nodes, len(pods), time.Since(begin))
	return t.failed
}

// decide calls filter with all nodes and prioritize with the nodes that fit, and returns the best node.
func (t *times) decide(client *http.Client, pod waitingPod, names []byte) (string, error) {
	var answer bytes.Buffer
	ask := func(verb string, names []byte) (time.Duration, error) {
		body := slices.Concat([]byte(`{"Pod":`), pod.text, []byte(`,"Nodes":null,"NodeNames":`), names, []byte("}"))
		begin := time.Now()
		err := post(client, verb, body, &answer)
		return time.Since(begin), err
	}
	filter, err := ask("filter", names)
	if err != nil {
		return "", err
	}
	var filtered struct{ NodeNames json.RawMessage }
	if err := json.Unmarshal(answer.Bytes(), &filtered); err != nil {
		return "", err
	}
	prioritize, err := ask("prioritize", filtered.NodeNames)
	if err != nil {
		return "", err
	}
	t.filter, t.prioritize = append(t.filter, filter), append(t.prioritize, prioritize)
	t.both = append(t.both, filter+prioritize)
	before, _, found := bytes.Cut(answer.Bytes(), []byte(`","Score":10}`))
	if !found {
		return "", fmt.Errorf("no node for %s: %.300s", pod.name, answer.Bytes())
	}
	return string(before[bytes.LastIndexByte(before, '"')+1:]), nil
}

// bindFrom requests the bindings of the queue, one after the other.
func (t *times) bindFrom(queue <-chan binding, client *http.Client, mutex *sync.Mutex) {
	var answer bytes.Buffer
	for next := range queue {
		body := encode(object{"PodName": next.pod.name, "PodNamespace": namespace, "PodUID": next.pod.uid, "Node": next.node})
		begin := time.Now()
		err := post(client, "bind", []byte(body), &answer)
		took := time.Since(begin)
		if err == nil && answer.String() != `{"Error":""}` {
			err = fmt.Errorf("bind: %s", answer.String())
		}
		mutex.Lock()
		t.bind = append(t.bind, took)
		if err != nil && t.failed == nil {
			t.failed = err
		}
		mutex.Unlock()
	}
}
