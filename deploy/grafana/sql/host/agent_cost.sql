-- What does the agent cost, over time? CPUs used by the agent and, by an estimate of the kernel from samples, by its BPF programs. No value where the
-- governor, which measures, is off, or may not ask the kernel: an agent that reports has used some time.
SELECT
    $__timeInterval(start_time) AS time, toString(ebpf_agent.host) AS host,
    nullIf(sum(agent_ns), 0) / 1e9 / $__interval_s AS agent, nullIf(sum(bpf_ns), 0) / 1e9 / $__interval_s AS "in the kernel"
FROM ebpf_agent
WHERE $__timeFilter(start_time)
#include "chosen_host.inc"
GROUP BY time, host
ORDER BY time, host
