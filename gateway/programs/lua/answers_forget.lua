-- Forget a stored answer.
-- KEYS: answers, their ages, tenants by number, what the keys of a tenant's ages begin with, owners
-- ARGV: member
forget_answer(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1])
return 1
