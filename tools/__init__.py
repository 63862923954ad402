"""Scripts that made what the package brings. The wheel has none of them."""
