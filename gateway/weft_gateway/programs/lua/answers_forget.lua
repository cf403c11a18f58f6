-- Forget a stored answer.
-- KEYS: answers, their ages, their order by tenant and age, tenants by number, owners
-- ARGV: member
forget_answer(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1])
return 1
