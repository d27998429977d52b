"""The functions of the language, one module per library; `library.FUNCTIONS` holds what Kubernetes declares."""
