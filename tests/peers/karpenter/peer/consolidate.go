package peer

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// polling is the time between two rounds without a command, as in Karpenter's controller.
const polling = 10 * time.Second

// consolidator runs Karpenter's consolidation methods in the order and in the
// manner of disruption.Controller, and carries each command out at once.
type consolidator struct {
	*world
	options     ConsolidateOptions
	provider    *cloud
	provisioner *provisioning.Provisioner
	queue       *disruption.Queue
	multi       *disruption.MultiNodeConsolidation
	single      *disruption.SingleNodeConsolidation
	methods     []disruption.Method
	landings    int // number of questions to the lander
}

// settings are Karpenter's defaults.
func settings(ctx context.Context) context.Context {
	ctx = injection.WithControllerName(ctx, "disruption")
	return options.ToContext(ctx, &options.Options{
		CPURequests:       1000,
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true},
	})
}

// Consolidate runs them until they find nothing more to do.
func Consolidate(ctx context.Context, in *Input, catalog *Catalog, o ConsolidateOptions) (*ConsolidateResult, error) {
	ctx = settings(ctx)
	began, cpu := time.Now(), cpuSeconds()
	c, err := newConsolidator(ctx, in, catalog, o)
	if err != nil {
		return nil, err
	}
	res := c.res
	res.NodesBefore, res.HourlyBefore = c.hourly()
	res.Pods = len(in.Store.kinds["Pod"].order)
	for idle := 0; res.StoppedBy == ""; res.Rounds++ {
		switch {
		case res.Rounds == o.MaxRounds:
			res.StoppedBy = "max rounds"
		case o.MaxWall > 0 && time.Since(began) > o.MaxWall:
			res.StoppedBy = "wall time"
		case idle == o.IdleRounds:
			res.StoppedBy = "idle rounds"
		}
		if res.StoppedBy != "" {
			break
		}
		r, err := c.round(ctx)
		if err != nil {
			return nil, err
		}
		idle++
		if r.Method != "" {
			idle = 0
		} else if c.multi.IsConsolidated() && c.single.IsConsolidated() {
			res.StoppedBy = "consolidated"
		}
		if o.Trace != nil {
			o.Trace(r)
		}
	}
	res.CPUSeconds = cpuSeconds() - cpu
	res.NodesAfter, res.HourlyAfter = c.hourly()
	res.SimulatedMinutes = c.clk.Since(o.Now).Minutes()
	res.PodsEvicted = len(c.evicted)
	for _, n := range c.evicted {
		res.MostEvictions = max(res.MostEvictions, n)
	}
	return res, nil
}

func newConsolidator(ctx context.Context, in *Input, catalog *Catalog, o ConsolidateOptions) (*consolidator, error) {
	clk := NewSkipClock(o.Now)
	provider := &cloud{catalog: catalog, input: in, cache: map[string][]*cloudprovider.InstanceType{}}
	cluster := state.NewCluster(clk, in.Store, provider)
	if err := hydrate(ctx, in, cluster); err != nil {
		return nil, err
	}
	if !cluster.Synced(ctx) {
		return nil, errors.New("the cluster state does not hold all nodes and NodeClaims of the input")
	}
	provisioner := provisioning.NewProvisioner(in.Store, silent{}, provider, cluster, clk, nil, nil)
	queue := disruption.NewQueue(in.Store, silent{}, cluster, clk, provisioner)
	common := disruption.MakeConsolidation(clk, cluster, in.Store, provisioner, provider, silent{}, queue)
	c := &consolidator{
		options: o, provider: provider, provisioner: provisioner, queue: queue,
		world: &world{
			in: in, cluster: cluster, clk: clk, types: map[string]*cloudprovider.InstanceType{},
			res: &ConsolidateResult{Commands: map[string]int{}}, evicted: map[client.ObjectKey]int{}, lander: o.Lander,
		},
		multi:  disruption.NewMultiNodeConsolidation(common, disruption.WithValidator(disruption.NewMultiConsolidationValidator(common))),
		single: disruption.NewSingleNodeConsolidation(common, disruption.WithValidator(disruption.NewSingleConsolidationValidator(common))),
	}
	empty := disruption.NewEmptiness(common, disruption.WithValidator(disruption.NewEmptinessValidator(common)))
	c.methods = []disruption.Method{empty, c.multi, c.single}
	pool := &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
		NodeClassRef: &karpv1.NodeClassReference{Name: "default"},
	}}}}
	types, err := provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, err
	}
	for _, it := range types {
		c.types[it.Name] = it
	}
	return c, nil
}

// round asks the methods one after another, until one has commands, and carries these out.
func (c *consolidator) round(ctx context.Context) (*Round, error) {
	r := &Round{N: c.res.Rounds + 1}
	cpu := cpuSeconds()
	var commands []disruption.Command
	for _, m := range c.methods {
		found, err := c.commands(ctx, m, r)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			commands, r.Method = found, m.ConsolidationType()
			break
		}
	}
	r.CPUSeconds = cpuSeconds() - cpu
	for i := range commands {
		if err := c.apply(ctx, &commands[i], r); err != nil {
			return nil, err
		}
		if c.lander != nil {
			if err := c.land(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	if len(commands) == 0 {
		c.clk.Step(polling)
	} else {
		c.res.Commands[r.Method]++
	}
	r.Nodes, r.Hourly = c.hourly()
	r.SimMinutes = c.clk.Since(c.options.Now).Minutes()
	return r, nil
}

func (c *consolidator) commands(ctx context.Context, m disruption.Method, r *Round) ([]disruption.Command, error) {
	store := c.in.Store
	candidates, totals, err := disruption.GetCandidatesWithTotals(
		ctx, c.cluster, store, silent{}, c.clk, c.provider, m.ShouldDisrupt, m.Class(), c.queue, nil)
	if err != nil || len(candidates) == 0 {
		return nil, err
	}
	r.Candidates = len(candidates)
	if setter, ok := m.(disruption.NodePoolTotalsSetter); ok {
		setter.SetNodePoolTotals(totals)
	}
	budgets, err := disruption.BuildDisruptionBudgetMapping(ctx, c.cluster, c.clk, store, c.provider, silent{}, m.Reason())
	if err != nil {
		return nil, err
	}
	all, err := m.ComputeCommands(ctx, budgets, candidates...)
	if err != nil {
		return nil, err
	}
	var found []disruption.Command
	for _, command := range all {
		if command.Decision() != disruption.NoOpDecision {
			found = append(found, command)
		}
	}
	return found, nil
}
