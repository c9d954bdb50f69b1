import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official client's side of the benchmarks: JavaPeer NAME_SERVER, then one command a line on standard input, one
 * JSON object a line on standard output. One process for all repeats, so that the JVM is warm.
 *
 * <pre>
 * pull TOPIC COUNT BATCH THREADS THRESHOLD_FOR_QUEUE THRESHOLD_FOR_ALL POLL_MS
 * send TOPIC COUNT SIZE BATCH IN_FLIGHT
 * sync TOPIC COUNT SIZE
 * </pre>
 *
 * The clock covers: pull, from before the assignment of the queues to the last message; send and sync, from making the
 * first Message object to the last acknowledgement. Bodies are made before. Starting and stopping a client is not timed.
 */
public final class JavaPeer {
    /** Odd, so that multiplying by it loses nothing modulo 2^64; bench/common/tally.py has the same. */
    private static final long QUEUE_FACTOR = 0x9E3779B97F4A7C15L;
    private static final int PULL_THRESHOLD_MIB = 1024;
    private static final long STALLED_NANOS = 30_000_000_000L;

    private final String nameServer;
    private int groups;

    private JavaPeer(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) {
        JavaPeer peer = new JavaPeer(args[0]);
        System.out.println("{\"ready\":\"" + System.getProperty("java.version") + "\"}");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().trim().split(" ");
            String answer;
            try {
                answer = peer.run(words);
            } catch (Exception error) {
                error.printStackTrace();
                answer = "{\"error\":\"" + error.toString().replaceAll("[^ -!#-\\[\\]-~]", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private String run(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[2]);
        switch (words[0]) {
            case "pull":
                return pull(topic, count, numbers(words));
            case "send":
                return send(topic, count, numbers(words));
            case "sync":
                return sync(topic, count, numbers(words)[0]);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static int[] numbers(String[] words) {
        return Arrays.stream(words, 3, words.length).mapToInt(Integer::parseInt).toArray();
    }

    /** The lite pull consumer's plain loop: poll, and look at each message. */
    private String pull(String topic, int count, int[] settings) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("java-pull-" + ProcessHandle.current().pid() + "-" + groups++);
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(settings[0]);
        consumer.setPullThreadNums(settings[1]);
        consumer.setPullThresholdForQueue(settings[2]);
        consumer.setPullThresholdForAll(settings[3]);
        consumer.setPullThresholdSizeForQueue(PULL_THRESHOLD_MIB);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            long seen = 0;
            long bytes = 0;
            long offsets = 0;
            long crcs = 0;
            long begin = System.nanoTime();
            long progress = begin;
            consumer.assign(queues);
            while (seen < count) {
                List<MessageExt> messages = consumer.poll(settings[4]);
                for (MessageExt message : messages) {
                    seen++;
                    bytes += message.getBody().length;
                    offsets += (message.getQueueOffset() + 1) * (message.getQueueId() + 1) * QUEUE_FACTOR;
                    crcs += message.getBodyCRC();
                }
                if (!messages.isEmpty()) {
                    progress = System.nanoTime();
                } else if (System.nanoTime() - progress > STALLED_NANOS) {
                    break;
                }
            }
            return result(System.nanoTime() - begin, seen, bytes, offsets, crcs);
        } finally {
            consumer.shutdown();
        }
    }

    /** Batches, with up to so many in flight; one in flight is the blocking send. */
    private String send(String topic, int count, int[] numbers) throws Exception {
        int batch = numbers[1];
        int inFlight = numbers[2];
        byte[][] bodies = bodies(count, numbers[0]);
        DefaultMQProducer producer = producer();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Semaphore permits = new Semaphore(inFlight);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                if (sent.getSendStatus() != SendStatus.SEND_OK) {
                    failure.compareAndSet(null, new IllegalStateException(sent.getSendStatus().name()));
                }
                permits.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.compareAndSet(null, error);
                permits.release();
            }
        };
        try {
            producer.fetchPublishMessageQueues(topic);
            long bytes = 0;
            long begin = System.nanoTime();
            for (int first = 0; first < count; first += batch) {
                int end = Math.min(count, first + batch);
                List<Message> messages = new ArrayList<>(end - first);
                for (int i = first; i < end; i++) {
                    messages.add(new Message(topic, "bench", "k" + i, bodies[i]));
                    bytes += bodies[i].length;
                }
                if (inFlight == 1) {
                    producer.send(messages);
                } else {
                    permits.acquire();
                    producer.send(messages, callback);
                }
            }
            permits.acquire(inFlight);
            long nanos = System.nanoTime() - begin;
            if (failure.get() != null) {
                throw new IllegalStateException("a batch failed: " + failure.get());
            }
            return result(nanos, count, bytes, 0, 0);
        } finally {
            producer.shutdown();
        }
    }

    private String sync(String topic, int count, int size) throws Exception {
        byte[][] bodies = bodies(count, size);
        DefaultMQProducer producer = producer();
        try {
            producer.fetchPublishMessageQueues(topic);
            long bytes = 0;
            long begin = System.nanoTime();
            for (int i = 0; i < count; i++) {
                producer.send(new Message(topic, "bench", "k" + i, bodies[i]));
                bytes += bodies[i].length;
            }
            return result(System.nanoTime() - begin, count, bytes, 0, 0);
        } finally {
            producer.shutdown();
        }
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-send-" + ProcessHandle.current().pid() + "-" + groups++);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(30_000);
        // Neither side compresses here: the default threshold is 4096 bytes, larger than any body.
        producer.start();
        return producer;
    }

    /** As bench/client/ours.py makes them: the message's number in 12 digits, then x. */
    private static byte[][] bodies(int count, int size) {
        byte[][] bodies = new byte[count][];
        for (int i = 0; i < count; i++) {
            byte[] body = new byte[size];
            Arrays.fill(body, (byte) 'x');
            byte[] number = String.format("%012d", i).getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(number, 0, body, 0, number.length);
            bodies[i] = body;
        }
        return bodies;
    }

    private static String result(long nanos, long count, long bytes, long offsets, long crcs) {
        return String.format(
            "{\"seconds\":%s,\"count\":%d,\"bytes\":%d,\"offsets\":%s,\"crcs\":%d}",
            nanos / 1e9, count, bytes, Long.toUnsignedString(offsets), crcs);
    }
}
