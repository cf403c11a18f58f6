-- Forget a stored answer. ARGV: member
forget_answer(ARGV[1])
return 1
