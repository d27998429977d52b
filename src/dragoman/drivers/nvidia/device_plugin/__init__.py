"""NVIDIA's device plugin: GPUs and MIG devices as extended resources, on real and on simulated hardware."""
