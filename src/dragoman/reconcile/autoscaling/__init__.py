"""How many replicas should a workload have? What a HorizontalPodAutoscaler decides from metrics, pods and its memory.

Source: pkg/controller/podautoscaler of k8s.io/kubernetes v1.37. Pure functions of their arguments; `daemon.autoscaler`
reads and writes.
"""
