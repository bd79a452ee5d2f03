//! The Kubernetes client: connecting, watching, acting.
