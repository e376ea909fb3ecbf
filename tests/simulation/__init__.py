"""Several brokers, one catalog and one store on one thread, in virtual time: the same seed is the same story."""
