-- Hosts where the governor kept only one event of a tracker in `one_in` during some of the window, however long it was, for `underspan requests`,
-- `offcpu`, `gil`, `top` and `timeline`. Sums of a tracker (..._profile) are sampled with its rows.
SELECT toString(ebpf_agent.host) AS host, toString(ebpf_agent.tracker) AS of, toUInt32(exp2(max(skip_shift))) AS one_in
FROM ebpf_agent
WHERE tracker IN ({tracker:String}, replaceOne({tracker:String}, '_profile', ''))
    AND start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND start_time < {to:DateTime64(6, 'UTC')}
    AND end_time > {from:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR ebpf_agent.host = {host:String})
GROUP BY host, of
HAVING one_in > 1
ORDER BY host, of
