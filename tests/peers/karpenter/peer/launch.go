package peer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// launch adds a replacement to the store and the cluster state, in service, and returns its name.
func (w *world) launch(ctx context.Context, replacement *disruption.Replacement) (string, error) {
	best := cheapest(replacement.NodeClaim)
	if best == nil {
		return "", fmt.Errorf("no offering for a replacement of pool %s", replacement.NodePoolName)
	}
	w.res.NodesLaunched++
	name := fmt.Sprintf("new-%04d", w.res.NodesLaunched)
	node, claim := objects(name, metav1.NewTime(w.clk.Now()), replacement, best, w.types[best.InstanceType])
	if err := w.in.Store.Put(claim); err != nil {
		return "", err
	}
	if err := w.in.Store.Put(node); err != nil {
		return "", err
	}
	w.cluster.UpdateNodeClaim(claim.DeepCopy())
	return name, w.cluster.UpdateNode(ctx, node.DeepCopy())
}

// objects makes the node and the NodeClaim a cloud provider and a kubelet would.
func objects(name string, now metav1.Time, rep *disruption.Replacement, best *Offering, it *cloudprovider.InstanceType) (*corev1.Node, *karpv1.NodeClaim) {
	claim := rep.ToNodeClaim()
	claim.Name, claim.GenerateName = name, ""
	claim.UID = types.UID("nc-" + name)
	claim.CreationTimestamp = now
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	for key, req := range it.Requirements {
		if req.Len() == 1 && req.Operator() == corev1.NodeSelectorOpIn {
			claim.Labels[key] = req.Values()[0]
		}
	}
	for _, of := range it.Offerings {
		if of.Zone() == best.Zone && of.CapacityType() == best.CapacityType {
			for key, req := range of.Requirements {
				if req.Len() == 1 && req.Operator() == corev1.NodeSelectorOpIn {
					claim.Labels[key] = req.Values()[0]
				}
			}
		}
	}
	claim.Labels[corev1.LabelInstanceTypeStable] = best.InstanceType
	claim.Labels[corev1.LabelTopologyZone] = best.Zone
	claim.Labels[karpv1.CapacityTypeLabelKey] = best.CapacityType
	claim.Labels["karpenter.k8s.aws/ec2nodeclass"] = claim.Spec.NodeClassRef.Name
	delete(claim.Labels, corev1.LabelHostname)
	claim.Status.NodeName, claim.Status.ProviderID = name, "aws:///"+best.Zone+"/i-"+name
	claim.Status.Capacity, claim.Status.Allocatable = it.Capacity.DeepCopy(), it.Allocatable().DeepCopy()
	for _, cond := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized, karpv1.ConditionTypeConsolidatable} {
		claim.StatusConditions().SetTrue(cond)
	}
	labels := map[string]string{}
	for k, v := range claim.Labels {
		labels[k] = v
	}
	labels[corev1.LabelHostname] = name
	labels[karpv1.NodeRegisteredLabelKey], labels[karpv1.NodeInitializedLabelKey] = "true", "true"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("n-" + name), CreationTimestamp: now, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: claim.Status.Capacity.DeepCopy(), Allocatable: claim.Status.Allocatable.DeepCopy(),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	return node, claim
}
