#!/bin/sh
# Measures how long `plimsoll plan` takes to read its input, and its peak of memory: read.sh [PROGRAM] [PODS]
# 5,000 pods as `kubectl get pods` prints a short one, as JSON and as YAML, and PODS (1,000,000) in 8 Deployments that are spread over zones.
set -eu
program=${1:-target/release/plimsoll} pods=${2:-1000000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/pool.yaml" <<'POOL'
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  subnetSelectorTerms: [{tags: {cluster: measured}}]
  securityGroupSelectorTerms: [{tags: {cluster: measured}}]
POOL

awk 'BEGIN {
  print "apiVersion: v1\nkind: List\nitems:"
  for (pod = 0; pod < 5000; pod++)
    printf "- apiVersion: v1\n  kind: Pod\n  metadata:\n    labels:\n      app: app-%d\n      tier: web\n    name: pod-%05d\n    namespace: shop\n  spec:\n    containers:\n    - image: registry.example/app:1.2.3\n      imagePullPolicy: IfNotPresent\n      name: app\n      ports:\n      - containerPort: 8080\n        protocol: TCP\n      resources:\n        requests:\n          cpu: %dm\n          memory: %dMi\n    restartPolicy: Always\n  status:\n    phase: Pending\n", pod % 40, pod, 250 * (1 + pod % 8), 512 * (1 + pod % 5)
}' > "$folder/pods.yaml"
awk 'BEGIN {
  printf "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": ["
  for (pod = 0; pod < 5000; pod++)
    printf "%s{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"labels\": {\"app\": \"app-%d\", \"tier\": \"web\"}, \"name\": \"pod-%05d\", \"namespace\": \"shop\"}, \"spec\": {\"containers\": [{\"image\": \"registry.example/app:1.2.3\", \"imagePullPolicy\": \"IfNotPresent\", \"name\": \"app\", \"ports\": [{\"containerPort\": 8080, \"protocol\": \"TCP\"}], \"resources\": {\"requests\": {\"cpu\": \"%dm\", \"memory\": \"%dMi\"}}}], \"restartPolicy\": \"Always\"}, \"status\": {\"phase\": \"Pending\"}}", pod ? ",\n" : "", pod % 40, pod, 250 * (1 + pod % 8), 512 * (1 + pod % 5)
  print "]}"
}' > "$folder/pods.json"
awk -v pods="$pods" 'BEGIN {
  for (number = 0; number < 8; number++)
    printf "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web-%d, namespace: shop}\nspec:\n  replicas: %d\n  selector: {matchLabels: {app: web-%d}}\n  template:\n    metadata: {labels: {app: web-%d}}\n    spec:\n      topologySpreadConstraints:\n      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web-%d}}}\n      containers:\n      - {name: app, image: example, resources: {requests: {cpu: %dm, memory: %dMi}}}\n", number, pods / 8, number, number, number, 250 * (1 + number % 4), 512 * (1 + number % 3)
}' > "$folder/deployments.yaml"

for file in pods.json pods.yaml deployments.yaml; do
  echo "$file, $(wc -c < "$folder/$file") bytes:"
  /usr/bin/time -f '%e s in all, %U s of the CPU in the program, %M KiB at the most' \
    "$program" plan -f "$folder/pool.yaml" -f "$folder/$file" --timings > "$folder/plan"
done
