# The role of the nodes. The actuator creates instance profiles with this role.

data "aws_iam_policy_document" "node_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

resource "aws_iam_role" "node" {
  count = var.create_node_role ? 1 : 0

  name               = local.node_role_name
  assume_role_policy = data.aws_iam_policy_document.node_trust.json
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset(var.create_node_role ? [
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonSSMManagedInstanceCore",
  ] : [])

  role       = aws_iam_role.node[0].name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.value}"
}

# Allows nodes with this role to join. Windows nodes need a separate role with an entry of type EC2_WINDOWS.
resource "aws_eks_access_entry" "node" {
  count = var.create_access_entry ? 1 : 0

  cluster_name  = var.cluster_name
  principal_arn = var.create_node_role ? aws_iam_role.node[0].arn : "arn:${local.partition}:iam::${local.account}:role/${local.node_role_name}"
  type          = "EC2_LINUX"
}
