package peer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// adoptNodes makes a Karpenter node out of each Node that carries the nodepool
// label: such a node always has a NodeClaim, and without one the cluster state
// would not treat it as its own. A node that says
// karpenter.sh/initialized: "false" stays uninitialised, and its startup taints
// are the ones of its pool.
func (in *Input) adoptNodes() error {
	pools := map[string]*karpv1.NodePool{}
	if err := Each(in.Store, "NodePool", func(np *karpv1.NodePool) error { pools[np.Name] = np; return nil }); err != nil {
		return err
	}
	claimed := map[string]bool{}
	if err := Each(in.Store, "NodeClaim", func(nc *karpv1.NodeClaim) error { claimed[nc.Status.ProviderID] = true; return nil }); err != nil {
		return err
	}
	var made []*karpv1.NodeClaim
	err := Each(in.Store, "Node", func(n *corev1.Node) error {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		if n.Labels[corev1.LabelHostname] == "" {
			n.Labels[corev1.LabelHostname] = n.Name
		}
		if len(n.Status.Allocatable) == 0 {
			n.Status.Allocatable = n.Status.Capacity.DeepCopy()
		}
		if len(n.Status.Capacity) == 0 {
			n.Status.Capacity = n.Status.Allocatable.DeepCopy()
		}
		pool := n.Labels[karpv1.NodePoolLabelKey]
		if pool == "" {
			return nil
		}
		if n.Spec.ProviderID == "" {
			n.Spec.ProviderID = "aws:///" + n.Labels[corev1.LabelTopologyZone] + "/" + n.Name
		}
		for _, key := range []string{karpv1.NodeRegisteredLabelKey, karpv1.NodeInitializedLabelKey} {
			if _, ok := n.Labels[key]; !ok {
				n.Labels[key] = "true"
			}
		}
		if claimed[n.Spec.ProviderID] {
			return nil
		}
		nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp}}
		nc.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
		if np := pools[pool]; np != nil {
			nc.Spec = np.Spec.Template.ToNodeClaim().Spec
		}
		nc.Spec.Taints = n.Spec.Taints
		nc.Status.ProviderID, nc.Status.NodeName = n.Spec.ProviderID, n.Name
		nc.Status.Capacity, nc.Status.Allocatable = n.Status.Capacity, n.Status.Allocatable
		nc.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		nc.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		if n.Labels[karpv1.NodeInitializedLabelKey] == "true" {
			nc.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
			nc.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
		}
		in.stamp("NodeClaim", nc)
		made = append(made, nc)
		return nil
	})
	if err != nil {
		return err
	}
	for _, nc := range made {
		if err := in.Store.Put(nc); err != nil {
			return err
		}
	}
	return nil
}
