"""Oracles and checks: enumeration, quadrature, goodness of fit, planted faults."""
