"""How is a cluster with DRA watched? Its metrics, the rules that alert on them, dashboards, and drills, as values."""
