"""What people do with a trained model and their own rows: codes, scores, gaps filled, new rows, neighbors."""
