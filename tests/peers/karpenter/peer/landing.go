package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// landingKinds are the objects that kube-scheduler looks at.
var landingKinds = []string{"Namespace", "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Node", "Pod"}

// A Lander says where kube-scheduler binds the pending pods of a cluster.
type Lander interface {
	Land(objects []client.Object, now time.Time) (map[client.ObjectKey]string, error)
}

// landingProgram is a Lander in another process, which answers each line of its input by a line.
type landingProgram struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// StartLander starts a program that reads clusters and prints bindings. The returned function ends the program.
func StartLander(program string, args ...string) (Lander, func() error, error) {
	p := &landingProgram{command: exec.Command(program, args...)}
	p.command.Stderr = os.Stderr
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	end := func() error {
		_ = p.in.Close()
		return p.command.Wait()
	}
	return p, end, nil
}

// Land implements Lander.
func (p *landingProgram) Land(objects []client.Object, now time.Time) (map[client.ObjectKey]string, error) {
	question := map[string]any{"objects": objects, "unixMillis": now.UnixMilli()}
	if err := json.NewEncoder(p.in).Encode(question); err != nil {
		return nil, fmt.Errorf("%s: %w", p.command.Path, err)
	}
	var answer struct {
		Bindings map[string]string `json:"bindings"`
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.command.Path, err)
	}
	bindings := map[client.ObjectKey]string{}
	for pod, node := range answer.Bindings {
		namespace, name, ok := strings.Cut(pod, "/")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not the name of a pod", p.command.Path, pod)
		}
		bindings[client.ObjectKey{Namespace: namespace, Name: name}] = node
	}
	return bindings, nil
}

// landingRounds bounds how often nodes are launched for pods that found none.
const landingRounds = 10

// land binds pending pods where kube-scheduler would, and provisions nodes for the others.
func (c *consolidator) land(ctx context.Context, r *Round) error {
	for range landingRounds {
		if len(c.in.Store.OnNode("")) == 0 {
			return nil
		}
		objects, err := c.landingObjects()
		if err != nil {
			return err
		}
		// The time decides the order of the pods. The clock includes the real time of computing, so that it would be
		// another order in each run.
		c.landings++
		bindings, err := c.lander.Land(objects, c.options.Now.Add(time.Duration(c.landings)*time.Minute))
		if err != nil {
			return err
		}
		for _, pod := range append([]*corev1.Pod(nil), c.in.Store.OnNode("")...) {
			node, ok := bindings[client.ObjectKeyFromObject(pod)]
			if !ok {
				continue
			}
			if err := c.bind(ctx, []*corev1.Pod{pod}, node); err != nil {
				return err
			}
		}
		if err := c.launchForPending(ctx, r); err != nil {
			return err
		}
	}
	for _, pod := range c.in.Store.OnNode("") {
		c.anomaly("pod %s has no node", client.ObjectKeyFromObject(pod))
	}
	return nil
}

// launchForPending launches the nodes that Karpenter's provisioner decides on.
func (c *consolidator) launchForPending(ctx context.Context, r *Round) error {
	results, err := c.provisioned(ctx)
	if err != nil || results == nil {
		return err
	}
	for _, claim := range results.NewNodeClaims {
		if _, err := c.launch(ctx, &disruption.Replacement{NodeClaim: claim}); err != nil {
			return err
		}
		r.Launched++
	}
	return nil
}

// landingObjects are the objects of landingKinds with their kinds. Pods have no UID: the program names pods.
func (c *consolidator) landingObjects() ([]client.Object, error) {
	var objects []client.Object
	for _, kind := range landingKinds {
		err := Each(c.in.Store, kind, func(o client.Object) error {
			sent := o.DeepCopyObject().(client.Object)
			gvk, err := apiutil.GVKForObject(sent, c.in.Store.Scheme())
			if err != nil {
				return err
			}
			sent.GetObjectKind().SetGroupVersionKind(gvk)
			if kind == "Pod" {
				sent.SetUID("")
			}
			objects = append(objects, sent)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}
