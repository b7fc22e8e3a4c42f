"""Simulates the kubelet of every instance of the EC2 in tests/ec2."""
