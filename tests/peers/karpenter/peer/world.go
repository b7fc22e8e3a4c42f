package peer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	podutil "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// maxAnomalies bounds the list in the result.
const maxAnomalies = 50

// world is the cluster in which commands are carried out.
type world struct {
	in      *Input
	cluster *state.Cluster
	clk     *SkipClock
	types   map[string]*cloudprovider.InstanceType
	res     *ConsolidateResult
	evicted map[client.ObjectKey]int
	boot    time.Duration // from launch to service of a node
	billed  time.Time     // usd is the cost until this time
	usd     float64
	lander  Lander // nil: pods go where commands put them
}

// bill adds the cost of the nodes since the last call.
func (w *world) bill() {
	now := w.clk.Now()
	_, rate := w.hourly()
	w.usd += rate * now.Sub(w.billed).Hours()
	w.billed = now
}

// pass lets time go by, if d is positive.
func (w *world) pass(d time.Duration) {
	if d > 0 {
		w.clk.Step(d)
		w.bill()
	}
}

func (w *world) price(l map[string]string) float64 {
	it := w.types[l[corev1.LabelInstanceTypeStable]]
	if it == nil {
		return 0
	}
	for _, o := range it.Offerings {
		if o.Zone() == l[corev1.LabelTopologyZone] && o.CapacityType() == l[karpv1.CapacityTypeLabelKey] {
			return o.Price
		}
	}
	return 0
}

func (w *world) hourly() (n int, sum float64) {
	_ = Each(w.in.Store, "Node", func(node *corev1.Node) error {
		n++
		sum += w.price(node.Labels)
		return nil
	})
	return n, sum
}

func (w *world) anomaly(format string, args ...any) {
	if len(w.res.Anomalies) < maxAnomalies {
		w.res.Anomalies = append(w.res.Anomalies, fmt.Sprintf(format, args...))
	}
}

// apply carries a command out: replacements come up at once at their cheapest
// offering, the candidates are gone, their pods go where the simulation of the
// command put them, or wait if there is a lander.
func (w *world) apply(ctx context.Context, command *disruption.Command, r *Round) error {
	target := map[client.ObjectKey]string{}
	for _, existing := range command.Results.ExistingNodes {
		for _, p := range existing.Pods {
			target[client.ObjectKeyFromObject(p)] = existing.Name()
		}
	}
	w.bill()
	for _, replacement := range command.Replacements {
		name, err := w.launch(ctx, replacement)
		if err != nil {
			return err
		}
		r.Launched++
		for _, p := range replacement.Pods {
			target[client.ObjectKeyFromObject(p)] = name
		}
	}
	if len(command.Replacements) > 0 {
		w.pass(w.boot)
	}
	gone := map[string]bool{}
	for _, candidate := range command.Candidates {
		gone[candidate.Name()] = true
	}
	var moved []*corev1.Pod
	for _, candidate := range command.Candidates {
		for _, pod := range append([]*corev1.Pod(nil), w.in.Store.OnNode(candidate.Name())...) {
			if p := w.move(pod, target, gone); p != nil {
				moved = append(moved, p)
			}
		}
	}
	r.Removed += len(gone)
	r.Evicted += len(moved)
	for _, p := range moved {
		if err := w.cluster.UpdatePod(ctx, p.DeepCopy()); err != nil {
			return err
		}
	}
	for _, candidate := range command.Candidates {
		w.in.Store.Remove("NodeClaim", candidate.NodeClaim.Name)
		w.in.Store.Remove("Node", candidate.Name())
		w.cluster.DeleteNodeClaim(candidate.NodeClaim.Name)
		w.cluster.DeleteNode(candidate.Name())
		w.res.NodesRemoved++
	}
	return nil
}

// move binds the pod of a removed node to its target. With a lander, the pod becomes the pending pod that its controller
// creates in its place.
func (w *world) move(pod *corev1.Pod, target map[client.ObjectKey]string, gone map[string]bool) *corev1.Pod {
	key := client.ObjectKeyFromObject(pod)
	if pod.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		w.anomaly("pod %s says do-not-disrupt and is evicted", key)
	}
	if !podutil.IsReschedulable(pod) {
		w.anomaly("pod %s is not reschedulable", key)
	}
	to, ok := target[key]
	switch {
	case w.lander != nil:
		to = ""
	case !ok || gone[to]:
		if to = w.firstFit(pod, gone); to == "" {
			w.anomaly("no place known for pod %s", key)
			return nil
		}
		w.anomaly("pod %s was not in the results; first fit", key)
	}
	w.cluster.DeletePod(key)
	w.evicted[key]++
	w.res.Evictions++
	moved := w.in.Store.Rebind(key, to)
	if to == "" {
		moved.CreationTimestamp = metav1.NewTime(w.clk.Now())
		moved.Status = corev1.PodStatus{}
		w.in.finishPod(moved, nil, 0)
	}
	return moved
}

// firstFit is the fallback for pods that a command says nothing about; resources only.
func (w *world) firstFit(pod *corev1.Pod, gone map[string]bool) string {
	found := ""
	_ = Each(w.in.Store, "Node", func(n *corev1.Node) error {
		if found != "" || gone[n.Name] {
			return nil
		}
		used := resources.RequestsForPods(append([]*corev1.Pod{pod}, w.in.Store.OnNode(n.Name)...)...)
		if resources.Fits(used, n.Status.Allocatable) {
			found = n.Name
		}
		return nil
	})
	return found
}

// cheapest is the offering that a replacement gets.
func cheapest(replacement *scheduling.NodeClaim) *Offering {
	var best *Offering
	for _, it := range replacement.InstanceTypeOptions {
		for _, of := range it.Offerings.Available().Compatible(replacement.Requirements) {
			c := &Offering{InstanceType: it.Name, Zone: of.Zone(), CapacityType: of.CapacityType(), Price: of.Price}
			if best == nil || less(c, best) {
				best = c
			}
		}
	}
	return best
}
