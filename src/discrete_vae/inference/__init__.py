"""A trained model in use on rows of data: codes, scores, gaps filled, new rows, neighbors, its evaluation."""
