"""Real data sets: from the hub or local files, cleaned once into Parquet, and then tasks like any other."""
