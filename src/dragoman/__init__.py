"""Dynamic Resource Allocation for Kubernetes, complete, in Python."""

__version__ = "0.1.0"
