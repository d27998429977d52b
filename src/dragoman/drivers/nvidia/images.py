"""Which images do the driver's own pods run? By default those of the driver's release."""

MPS_IMAGE = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.1"
"""Of MPS control daemons."""
MPS_NAMESPACE = "dra-driver-nvidia-gpu"
"""Where upstream's driver is, and its MPS control daemons, too."""
