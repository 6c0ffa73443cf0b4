"""From a Graph to a Schedule: an order, the hazards between nodes, and planned memory."""
