package peer

import (
	"fmt"
	"hash/fnv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func count(p *int32) int {
	if p == nil {
		return 1
	}
	return int(*p)
}

func templateHash(obj client.Object) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", obj.GetNamespace(), obj.GetName())
	return fmt.Sprintf("%08x", h.Sum32())
}

func (in *Input) replica(owner client.Object, ownerKind string, tpl *corev1.PodTemplateSpec, i int) *corev1.Pod {
	t := tpl.DeepCopy()
	yes := true
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name = owner.GetNamespace(), fmt.Sprintf("%s-%d", owner.GetName(), i)
	pod.GenerateName = ""
	pod.CreationTimestamp = owner.GetCreationTimestamp()
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: map[string]string{"Job": "batch/v1"}[ownerKind], Kind: ownerKind,
		Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes,
	}}
	if pod.OwnerReferences[0].APIVersion == "" {
		pod.OwnerReferences[0].APIVersion = "apps/v1"
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	return pod
}

func (in *Input) replicate(pods *[]client.Object, ownerKind string, owner client.Object, n int, tpl *corev1.PodTemplateSpec) {
	for i := 0; i < n; i++ {
		pod := in.replica(owner, ownerKind, tpl, i)
		if ownerKind == "ReplicaSet" {
			if _, ok := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
				pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash(owner)
			}
		}
		*pods = append(*pods, pod)
	}
}

func (in *Input) replicateStateful(pods *[]client.Object, addClaim func(*corev1.PersistentVolumeClaim), set *appsv1.StatefulSet) {
	for i := 0; i < count(set.Spec.Replicas); i++ {
		pod := in.replica(set, "StatefulSet", &set.Spec.Template, i)
		pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
		pod.Labels[appsv1.PodIndexLabel] = fmt.Sprint(i)
		for j := range set.Spec.VolumeClaimTemplates {
			tpl := set.Spec.VolumeClaimTemplates[j].DeepCopy()
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: tpl.Name + "-" + pod.Name, Labels: tpl.Labels},
				Spec:       tpl.Spec,
			}
			addClaim(claim)
			vol := corev1.Volume{Name: tpl.Name}
			vol.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}
			kept := pod.Spec.Volumes[:0:0]
			for _, v := range pod.Spec.Volumes {
				if v.Name != tpl.Name {
					kept = append(kept, v)
				}
			}
			pod.Spec.Volumes = append(kept, vol)
		}
		*pods = append(*pods, pod)
	}
}
