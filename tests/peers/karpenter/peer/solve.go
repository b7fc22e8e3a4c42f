package peer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// Options are the settings of one run. They are Karpenter's own.
type Options struct {
	PreferencePolicy string
	MinValuesPolicy  string
	CPURequests      int64 // of the controller, in millicores; one scheduling worker for each started core
	Timeout          time.Duration
	PodsLimit        int // 0: none
	// SkipTruncate leaves out the sorting and cutting of type lists after
	// Solve. Nodes and prices are the same without it unless minValues is used.
	SkipTruncate bool
}

// cpuSeconds is the processor time of this process so far: a fairer measure
// than the clock on a machine that does other work too.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// Solve runs Karpenter's provisioner up to the point where it would create
// NodeClaims, in the order in which its Schedule method does the same.
func Solve(ctx context.Context, input *Input, catalog *Catalog, o Options) (*Result, error) {
	began := time.Now()
	ctx = injection.WithControllerName(ctx, "provisioner")
	ctx = options.ToContext(ctx, &options.Options{
		CPURequests:       o.CPURequests,
		PreferencePolicy:  options.PreferencePolicy(o.PreferencePolicy),
		MinValuesPolicy:   options.MinValuesPolicy(o.MinValuesPolicy),
		IgnoreDRARequests: true,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
	})
	provider := &cloud{catalog: catalog, input: input, cache: map[string][]*cloudprovider.InstanceType{}}
	clk := clock.RealClock{}
	cluster := state.NewCluster(clk, input.Store, provider)
	if err := hydrate(ctx, input, cluster); err != nil {
		return nil, err
	}
	if !cluster.Synced(ctx) {
		return nil, errors.New("the cluster state does not hold all nodes and NodeClaims of the input")
	}
	provisioner := provisioning.NewProvisioner(input.Store, silent{}, provider, cluster, clk, nil, nil)

	res := newResult(input.seed)
	nodes := cluster.DeepCopyNodes()
	pods, err := provisioner.GetPendingPods(ctx)
	if err != nil {
		return nil, err
	}
	if o.PodsLimit > 0 && len(pods) > o.PodsLimit {
		pods = pods[:o.PodsLimit]
	} else {
		rejected(ctx, input, provisioner, pods, res)
	}
	leaving, err := nodes.Deleting().CurrentlyReschedulablePods(ctx, input.Store, clk, silent{})
	if err != nil {
		return nil, err
	}
	leavingUIDs := sets.New[types.UID]()
	for _, p := range leaving {
		leavingUIDs.Insert(p.UID)
	}
	pods = append(pods, leaving...)
	res.Summary.PendingPods = len(pods)

	opts := []scheduling.Options{
		scheduling.DisableReservedCapacityFallback,
		scheduling.NumConcurrentReconciles(int(math.Ceil(float64(o.CPURequests) / 1000))),
		scheduling.MinValuesPolicy(options.MinValuesPolicy(o.MinValuesPolicy)),
	}
	if o.PreferencePolicy == string(options.PreferencePolicyIgnore) {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	results := scheduling.Results{PodErrors: map[*corev1.Pod]error{}}
	var solver *scheduling.Scheduler
	if len(pods) > 0 {
		solver, err = provisioner.NewScheduler(ctx, pods, nodes.Active(), leavingUIDs, opts...)
		if errors.Is(err, provisioning.ErrNodePoolsNotFound) {
			for _, p := range pods {
				results.PodErrors[p] = err
			}
		} else if err != nil {
			return nil, err
		}
	}
	res.Timing.Setup = time.Since(began).Seconds()
	if solver != nil {
		solveCtx, cancel := ctx, context.CancelFunc(func() {})
		if o.Timeout > 0 {
			solveCtx, cancel = context.WithTimeout(ctx, o.Timeout)
		}
		// Solve sorts the slice it is given, so it gets one of its own.
		own := append([]*corev1.Pod(nil), pods...)
		start, cpu := time.Now(), cpuSeconds()
		results, err = solver.Solve(solveCtx, own)
		res.Timing.Solve, res.Timing.SolveCPU = time.Since(start).Seconds(), cpuSeconds()-cpu
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			res.TimedOut = true
		}
		if !o.SkipTruncate {
			start, cpu = time.Now(), cpuSeconds()
			results = results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
			res.Timing.Truncate, res.Timing.TruncateCPU = time.Since(start).Seconds(), cpuSeconds()-cpu
		}
	}
	report(results, pods, res, o.SkipTruncate)
	return res, nil
}

// hydrate does what Karpenter's informers do: tell the cluster state of each object.
func hydrate(ctx context.Context, input *Input, cluster *state.Cluster) error {
	if err := Each(input.Store, "NodeClaim", func(nc *karpv1.NodeClaim) error {
		cluster.UpdateNodeClaim(nc.DeepCopy())
		return nil
	}); err != nil {
		return err
	}
	if err := Each(input.Store, "Node", func(n *corev1.Node) error {
		if err := cluster.UpdateNode(ctx, n.DeepCopy()); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := Each(input.Store, "Pod", func(p *corev1.Pod) error {
		if p.Spec.NodeName != "" && !input.Store.Has("Node", types.NamespacedName{Name: p.Spec.NodeName}) {
			input.warn("pod %s runs on the node %s, which is not given", nameOf(p), p.Spec.NodeName)
			return nil
		}
		if err := cluster.UpdatePod(ctx, p.DeepCopy()); err != nil {
			return fmt.Errorf("pod %s: %w", nameOf(p), err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := Each(input.Store, "DaemonSet", func(d *appsv1.DaemonSet) error {
		return cluster.UpdateDaemonSet(ctx, d)
	}); err != nil {
		return err
	}
	return Each(input.Store, "NodePool", func(np *karpv1.NodePool) error {
		if err := np.RuntimeValidate(ctx); err != nil {
			input.warn("NodePool %s is not valid and is left out: %v", np.Name, err)
			np.StatusConditions().SetFalse(karpv1.ConditionTypeValidationSucceeded, "NodePoolValidationFailed", err.Error())
		}
		return nil
	})
}

// rejected reports the pods that never reach the scheduler, with the
// provisioner's own reason.
func rejected(ctx context.Context, input *Input, p *provisioning.Provisioner, taken []*corev1.Pod, res *Result) {
	seen := sets.New[types.UID]()
	for _, t := range taken {
		seen.Insert(t.UID)
	}
	for _, pod := range input.Store.byNode[""] {
		if seen.Has(pod.UID) {
			continue
		}
		if err := p.Validate(ctx, pod); err != nil {
			res.refuse(pod, "ignoring pod, "+err.Error())
			continue
		}
		reason := "not provisionable: not marked unschedulable, or of a DaemonSet or a node"
		res.Ignored = append(res.Ignored, Ignored{Pod: nameOf(pod), Reason: reason})
	}
}
