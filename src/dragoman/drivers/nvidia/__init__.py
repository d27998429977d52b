"""The driver of NVIDIA GPUs, `gpu.nvidia.com`, on real or simulated hardware."""
