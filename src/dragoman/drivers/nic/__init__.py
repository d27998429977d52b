"""Network adapters of simulated machines, published as dranet does it: driver `dra.net`, class `dranet.net`."""
