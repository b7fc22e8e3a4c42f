package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// Period is a workload that changes over time.
type Period struct {
	StepSeconds int                            `json:"stepSeconds"`
	BootSeconds int                            `json:"bootSeconds"`
	Shapes      map[string]corev1.ResourceList `json:"shapes"` // requests of one pod
	Steps       []map[string]int               `json:"steps"`  // number of pods by shape
}

// PeriodResult is what the period cost.
type PeriodResult struct {
	Karpenter           string  `json:"karpenter"`
	Days                float64 `json:"days"`
	Created             int     `json:"createdPods"`
	USD                 float64 `json:"usd"`
	Launched            int     `json:"launched"`
	Removed             int     `json:"removed"`
	Evicted             int     `json:"evicted"`
	WaitedSecondsPerPod float64 `json:"waitedSecondsPerPod"`
	WaitingAtEnd        int     `json:"waitingAtEnd"`
	NodesAtEnd          int     `json:"nodesAtEnd"`
	CPUSeconds          float64 `json:"cpuSeconds"`
	// Time by which the clock was behind the period at its end. It includes the real time of computing.
	LateSeconds float64  `json:"lateSeconds"`
	Anomalies   []string `json:"anomalies,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// ReadPeriod reads a period from a JSON file.
func ReadPeriod(path string) (*Period, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &Period{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.StepSeconds <= 0 {
		return nil, fmt.Errorf("%s: stepSeconds: must be positive", path)
	}
	for i, step := range p.Steps {
		for shape := range step {
			if _, ok := p.Shapes[shape]; !ok {
				return nil, fmt.Errorf("%s: steps[%d]: unknown shape %s", path, i, shape)
			}
		}
	}
	return p, nil
}

// follower runs Karpenter's provisioner and consolidation methods on a workload that changes.
type follower struct {
	*consolidator
	period  *Period
	created int
	waited  time.Duration
}

// Follow runs the period. Pods are provisioned at the beginning of each step; the rest of the step belongs to the
// consolidation methods. While nodes boot, the clock moves on and nothing else happens.
func Follow(ctx context.Context, in *Input, catalog *Catalog, period *Period, now time.Time) (*PeriodResult, error) {
	ctx = settings(ctx)
	cpu := cpuSeconds()
	c, err := newConsolidator(ctx, in, catalog, ConsolidateOptions{Now: now})
	if err != nil {
		return nil, err
	}
	f := &follower{consolidator: c, period: period}
	f.boot = time.Duration(period.BootSeconds) * time.Second
	f.billed = now
	length := time.Duration(period.StepSeconds) * time.Second
	for i, wanted := range period.Steps {
		begins := now.Add(time.Duration(i) * length)
		f.pass(begins.Sub(f.clk.Now()))
		if err := f.step(ctx, wanted, begins.Add(length)); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	ends := now.Add(time.Duration(len(period.Steps)) * length)
	f.pass(ends.Sub(f.clk.Now()))
	nodes, _ := f.hourly()
	res := &PeriodResult{
		Days: ends.Sub(now).Hours() / 24, Created: f.created, USD: f.usd,
		Launched: c.res.NodesLaunched, Removed: c.res.NodesRemoved, Evicted: c.res.Evictions,
		WaitingAtEnd: len(in.Store.OnNode("")), NodesAtEnd: nodes,
		CPUSeconds: cpuSeconds() - cpu, LateSeconds: f.clk.Now().Sub(ends).Seconds(),
		Anomalies: c.res.Anomalies, Warnings: in.Warnings,
	}
	if f.created > 0 {
		res.WaitedSecondsPerPod = f.waited.Seconds() / float64(f.created)
	}
	return res, nil
}

func (f *follower) step(ctx context.Context, wanted map[string]int, ends time.Time) error {
	if err := f.change(ctx, wanted); err != nil {
		return err
	}
	if err := f.provision(ctx); err != nil {
		return err
	}
	for f.clk.Now().Before(ends) {
		r, err := f.round(ctx)
		if err != nil {
			return err
		}
		f.bill()
		f.res.Rounds++
		if r.Method == "" && f.multi.IsConsolidated() && f.single.IsConsolidated() {
			break
		}
	}
	f.waited += time.Duration(len(f.in.Store.OnNode(""))) * time.Duration(f.period.StepSeconds) * time.Second
	return nil
}

// change makes the number of pods of each shape the wanted one. Controllers delete pods without a node first, then the
// youngest.
func (f *follower) change(ctx context.Context, wanted map[string]int) error {
	have := map[string][]*corev1.Pod{}
	_ = Each(f.in.Store, "Pod", func(p *corev1.Pod) error {
		have[p.Labels["shape"]] = append(have[p.Labels["shape"]], p)
		return nil
	})
	for _, shape := range sortedKeys(f.period.Shapes) {
		pods := have[shape]
		for len(pods) > wanted[shape] {
			i := youngest(pods)
			f.cluster.DeletePod(client.ObjectKeyFromObject(pods[i]))
			f.in.Store.RemovePod(pods[i])
			pods = append(pods[:i:i], pods[i+1:]...)
		}
		for n := len(pods); n < wanted[shape]; n++ {
			if err := f.create(ctx, shape); err != nil {
				return err
			}
		}
	}
	return nil
}

func youngest(pods []*corev1.Pod) int {
	best := 0
	for i, p := range pods {
		of := pods[best]
		if a, b := p.Spec.NodeName == "", of.Spec.NodeName == ""; a != b {
			if a {
				best = i
			}
		} else if of.CreationTimestamp.Before(&p.CreationTimestamp) {
			best = i
		}
	}
	return best
}

func (f *follower) create(ctx context.Context, shape string) error {
	f.created++
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "default", fmt.Sprintf("%s-%06d", shape, f.created)
	pod.Labels = map[string]string{"shape": shape}
	pod.CreationTimestamp.Time = f.clk.Now()
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Resources: corev1.ResourceRequirements{Requests: f.period.Shapes[shape].DeepCopy()},
	}}
	f.in.finishPod(pod, nil, 0)
	if err := f.in.Store.Put(pod); err != nil {
		return err
	}
	return f.cluster.UpdatePod(ctx, pod.DeepCopy())
}

// provision launches nodes for pending pods and binds the pods to the nodes of the result.
func (f *follower) provision(ctx context.Context) error {
	results, err := f.provisioned(ctx)
	if err != nil || results == nil {
		return err
	}
	f.bill()
	for _, node := range results.ExistingNodes {
		if err := f.bind(ctx, node.Pods, node.Name()); err != nil {
			return err
		}
	}
	type launched struct {
		name string
		pods []*corev1.Pod
	}
	var all []launched
	for _, claim := range results.NewNodeClaims {
		name, err := f.launch(ctx, &disruption.Replacement{NodeClaim: claim})
		if err != nil {
			return err
		}
		all = append(all, launched{name, claim.Pods})
	}
	if len(all) == 0 {
		return nil
	}
	f.pass(f.boot)
	for _, one := range all {
		f.waited += f.boot * time.Duration(len(one.pods))
		if err := f.bind(ctx, one.pods, one.name); err != nil {
			return err
		}
	}
	return nil
}

// provisioned is what Karpenter's provisioner decides for pending pods; nil if there are none.
func (c *consolidator) provisioned(ctx context.Context) (*scheduling.Results, error) {
	pods, err := c.provisioner.GetPendingPods(ctx)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	solver, err := c.provisioner.NewScheduler(ctx, pods, c.cluster.DeepCopyNodes().Active(), nil,
		scheduling.DisableReservedCapacityFallback, scheduling.NumConcurrentReconciles(1),
		scheduling.MinValuesPolicy(options.MinValuesPolicyStrict))
	if err != nil {
		return nil, err
	}
	results, err := solver.Solve(ctx, pods)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	results = results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
	return &results, nil
}

// bind binds pods to a node on which they run at once.
func (w *world) bind(ctx context.Context, pods []*corev1.Pod, node string) error {
	for _, p := range pods {
		bound := w.in.Store.Rebind(client.ObjectKeyFromObject(p), node)
		bound.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		if err := w.cluster.UpdatePod(ctx, bound.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}
