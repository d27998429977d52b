"""Which columns has a kind in `kubectl get`, and what stands in their cells? A module per family of kinds.

Names, order, priorities and texts are those of kube-apiserver 1.37's printers; descriptions are left out. A printer
reads one JSON object leniently (any field may be absent) and never fails on what is stored.
"""
