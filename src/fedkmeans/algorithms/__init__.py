"""The server side: rounds, aggregation, memory, stopping criteria and complete fits."""
