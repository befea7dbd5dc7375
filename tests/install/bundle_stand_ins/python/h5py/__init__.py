"""Is found, and never imported."""
