"""Many tenants and spaces in one store, a canary word in each: no surface shows one what belongs to another."""
