"""Laws of components to be run on parts of your own, with enumeration and goodness of fit."""
