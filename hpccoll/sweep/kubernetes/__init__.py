"""Kubernetes: the section of a site file for it, and manifests that run the jobs of a plan there."""
