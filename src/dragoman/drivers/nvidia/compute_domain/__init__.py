"""ComputeDomains: an IMEX domain for each workload, made and taken away with it (`compute-domain.nvidia.com`)."""
