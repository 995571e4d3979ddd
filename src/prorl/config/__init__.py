"""What a recipe may say, its defaults, where it comes from and what makes no sense together."""
