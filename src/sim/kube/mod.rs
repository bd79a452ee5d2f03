//! The fake Kubernetes API server with a small scheduler and controllers.
