package peer

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// uid gives the same object the same UID in each run; another seed gives
// another, equally arbitrary, order among otherwise equal pods.
func (in *Input) uid(kind string, obj client.Object) types.UID {
	h := fnv.New128a()
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], in.seed)
	h.Write(s[:])
	fmt.Fprintf(h, "%s/%s/%s", kind, obj.GetNamespace(), obj.GetName())
	b := h.Sum(nil)
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}

func (in *Input) stamp(kind string, obj client.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(in.uid(kind, obj))
	}
	if ts := obj.GetCreationTimestamp(); ts.IsZero() {
		obj.SetCreationTimestamp(epoch)
	}
}

var clusterScoped = map[string]bool{
	"Node": true, "Namespace": true, "PersistentVolume": true, "StorageClass": true, "PriorityClass": true,
	"CSINode": true, "NodePool": true, "NodeClaim": true, "EC2NodeClass": true,
}

func kindName(obj client.Object) string {
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil || len(gvks) == 0 {
		return fmt.Sprintf("%T", obj)
	}
	return gvks[0].Kind
}

// complete expands workloads and fills in defaults, then fills the store.
func (in *Input) complete(objs []client.Object) error {
	namespaces := map[string]bool{"default": true}
	priorities := map[string]int32{}
	var defaultPriority int32
	var defaultClass string
	for _, o := range objs {
		kind := kindName(o)
		if clusterScoped[kind] {
			o.SetNamespace("")
		} else if o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		if o.GetName() == "" {
			return fmt.Errorf("a %s has no name", kind)
		}
		namespaces[o.GetNamespace()] = true
		in.stamp(kind, o)
		switch v := o.(type) {
		case *schedulingv1.PriorityClass:
			priorities[v.Name] = v.Value
			if v.GlobalDefault {
				defaultPriority = v.Value
			}
		case *storagev1.StorageClass:
			if v.VolumeBindingMode == nil {
				m := storagev1.VolumeBindingImmediate
				v.VolumeBindingMode = &m
			}
			if v.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
				defaultClass = v.Name
			}
		}
	}
	delete(namespaces, "")

	var rest, pods []client.Object
	claims := map[client.ObjectKey]bool{}
	for _, o := range objs {
		if pvc, ok := o.(*corev1.PersistentVolumeClaim); ok {
			claims[client.ObjectKeyFromObject(pvc)] = true
		}
	}
	addClaim := func(pvc *corev1.PersistentVolumeClaim) {
		if key := client.ObjectKeyFromObject(pvc); !claims[key] {
			claims[key] = true
			in.stamp("PersistentVolumeClaim", pvc)
			rest = append(rest, pvc)
		}
	}
	for _, o := range objs {
		switch v := o.(type) {
		case *corev1.Pod:
			pods = append(pods, v)
		case *appsv1.Deployment:
			in.replicate(&pods, "ReplicaSet", v, count(v.Spec.Replicas), &v.Spec.Template)
		case *appsv1.ReplicaSet:
			in.replicate(&pods, "ReplicaSet", v, count(v.Spec.Replicas), &v.Spec.Template)
		case *appsv1.StatefulSet:
			in.replicateStateful(&pods, addClaim, v)
		case *batchv1.Job:
			n := count(v.Spec.Parallelism)
			if c := v.Spec.Completions; c != nil && int(*c) < n {
				n = int(*c)
			}
			in.replicate(&pods, "Job", v, n, &v.Spec.Template)
		case *corev1.Namespace:
			if v.Labels == nil {
				v.Labels = map[string]string{}
			}
			v.Labels[corev1.LabelMetadataName] = v.Name
			delete(namespaces, v.Name)
			rest = append(rest, v)
		case *appsv1.DaemonSet:
			defaultRequests(&v.Spec.Template.Spec)
			rest = append(rest, v)
		default:
			rest = append(rest, o)
		}
	}
	for _, name := range sortedKeys(namespaces) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		in.stamp("Namespace", ns)
		rest = append(rest, ns)
	}
	for _, o := range pods {
		pod := o.(*corev1.Pod)
		in.finishPod(pod, priorities, defaultPriority)
		for _, vol := range pod.Spec.Volumes {
			if vol.Ephemeral != nil && vol.Ephemeral.VolumeClaimTemplate != nil {
				addClaim(&corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + vol.Name},
					Spec:       vol.Ephemeral.VolumeClaimTemplate.Spec,
				})
			}
		}
	}
	for _, o := range rest {
		in.finish(o, defaultClass)
		if err := in.Store.Put(o); err != nil {
			return err
		}
	}
	for _, o := range pods {
		if err := in.Store.Put(o); err != nil {
			return err
		}
	}
	return in.adoptNodes()
}

// defaultRequests does what API defaulting does: a limit without a request is
// also the request.
func defaultRequests(spec *corev1.PodSpec) {
	fill := func(cs []corev1.Container) {
		for i := range cs {
			r := &cs[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; !ok {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit.DeepCopy()
				}
			}
		}
	}
	fill(spec.InitContainers)
	fill(spec.Containers)
}

func (in *Input) finishPod(pod *corev1.Pod, priorities map[string]int32, defaultPriority int32) {
	in.stamp("Pod", pod)
	defaultRequests(&pod.Spec)
	if pod.Spec.Priority == nil {
		p := defaultPriority
		if name := pod.Spec.PriorityClassName; name != "" {
			var ok bool
			if p, ok = priorities[name]; !ok && !strings.HasPrefix(name, "system-") {
				in.warn("pod %s/%s names the unknown priority class %s", pod.Namespace, pod.Name, name)
			}
		}
		pod.Spec.Priority = &p
	}
	if pod.Spec.NodeName != "" {
		if pod.Status.Phase == "" {
			pod.Status.Phase = corev1.PodRunning
		}
		return
	}
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return
		}
	}
	// Karpenter looks only at pods that kube-scheduler has given up on; a gated
	// pod is not one of them.
	reason := corev1.PodReasonUnschedulable
	if len(pod.Spec.SchedulingGates) > 0 {
		reason = corev1.PodReasonSchedulingGated
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason,
	})
}

func (in *Input) finish(o client.Object, defaultClass string) {
	switch v := o.(type) {
	case *corev1.PersistentVolumeClaim:
		if v.Spec.StorageClassName == nil && defaultClass != "" {
			v.Spec.StorageClassName = &defaultClass
		}
		if v.Status.Phase == "" {
			v.Status.Phase = corev1.ClaimPending
			if v.Spec.VolumeName != "" {
				v.Status.Phase = corev1.ClaimBound
			}
		}
		// The volume binder marks a claim that names its volume.
		if v.Spec.VolumeName != "" {
			if v.Annotations == nil {
				v.Annotations = map[string]string{}
			}
			v.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
		}
	case *karpv1.NodePool:
		if v.Spec.Template.Spec.NodeClassRef == nil {
			v.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{}
		}
		ref := v.Spec.Template.Spec.NodeClassRef
		if ref.Group == "" && ref.Kind == "" {
			ref.Group, ref.Kind = "karpenter.k8s.aws", "EC2NodeClass"
		}
		if ref.Name == "" {
			ref.Name = "default"
		}
		v.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		v.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	}
}

func init() {
	// as the AWS provider's operator package does
	karpv1.NormalizedLabels["topology.ebs.csi.aws.com/zone"] = corev1.LabelTopologyZone
}
