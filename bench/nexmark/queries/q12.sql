-- How many bids did each person make in each ten seconds of the clock?
CREATE TABLE q12 (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3))
WITH ('topic' = 'nexmark-q12');

CREATE VIEW arriving AS SELECT *, PROCTIME() AS p_time FROM bid;

INSERT INTO q12
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE(TABLE arriving, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
