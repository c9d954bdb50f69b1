import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.SubCommand;
import org.apache.rocketmq.tools.command.message.QueryMsgTraceByIdSubCommand;
import org.apache.rocketmq.tools.command.topic.RemappingStaticTopicSubCommand;
import org.apache.rocketmq.tools.command.topic.UpdateStaticTopicSubCommand;

/**
 * The official client for the interoperability tests: Interop NAME_SERVER, then a JSON object a line on standard input
 * and one a line on standard output.
 *
 * <pre>
 * {"do":"send", "topic":T, "mode":"single"|"batch"|"by_key", "messages":[...], "compression":"LZ4"|"ZSTD"|"ZLIB"|null}
 * {"do":"send_in_transaction", "topic":T, "group":G, "message":{...}, "decisions":["COMMIT"|"ROLLBACK"|"UNKNOW"...]}
 * {"do":"answer_checks", "topic":T, "group":G, "count":N, "decision":"COMMIT"|"ROLLBACK"}
 * {"do":"recall", "topic":T, "handle":H}
 * {"do":"static_topic", "topic":T, "brokers":"A,B", "queues":N|null (to move it)}
 * {"do":"consume_and_fail", "topic":T, "group":G, "count":N}
 * {"do":"consume", "topic":T, "count":N, "filter":"tag expression"|null}
 * {"do":"count", "topic":T} (how often each key comes, until nothing has come for five seconds)
 * {"do":"traces", "topic":T, "id":I, "data":"text"} (what the operator's tool prints of a message's trace, and what
 *     the client's own class reads in the text, and how it writes that)
 * {"do":"queues_of_keys", "topic":T, "keys":[...]}
 * </pre>
 */
public final class Interop {
    private static final long CONSUME_NANOS = 60_000_000_000L;
    private static final long QUIET_NANOS = 5_000_000_000L;
    private static final int COMPRESS_FROM = 4096;

    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private int groups;

    private Interop(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) {
        Interop interop = new Interop(args[0]);
        System.out.println("{\"ready\":\"" + System.getProperty("java.version") + "\"}");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            JSONObject answer;
            try {
                answer = interop.run(JSON.parseObject(lines.nextLine()));
            } catch (Exception error) {
                error.printStackTrace();
                answer = new JSONObject();
                answer.put("error", error.toString());
            }
            System.out.println(answer.toJSONString());
            System.out.flush();
        }
        System.exit(0);
    }

    private JSONObject run(JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "send":
                return send(command);
            case "send_in_transaction":
                return sendInTransaction(command);
            case "answer_checks":
                return answerChecks(command);
            case "recall":
                return recall(command);
            case "static_topic":
                return staticTopic(command);
            case "consume_and_fail":
                return consumeAndFail(command);
            case "consume":
                return consume(command);
            case "count":
                return count(command.getString("topic"));
            case "traces":
                return traces(command);
            case "queues_of_keys":
                return queuesOfKeys(command);
            default:
                throw new IllegalArgumentException(command.getString("do"));
        }
    }

    private JSONObject send(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        List<Message> messages = new ArrayList<>();
        JSONArray given = command.getJSONArray("messages");
        for (int i = 0; i < given.size(); i++) {
            messages.add(message(topic, given.getJSONObject(i)));
        }
        DefaultMQProducer producer = producer(command.getString("compression"));
        List<SendResult> results = new ArrayList<>();
        if (command.getString("mode").equals("batch")) {
            results.add(producer.send(messages));
        }
        for (Message message : command.getString("mode").equals("batch") ? Collections.<Message>emptyList() : messages) {
            if (command.getString("mode").equals("by_key")) {
                String key = message.getProperty("__SHARDINGKEY");
                results.add(producer.send(message, new SelectMessageQueueByHash(), key));
            } else {
                results.add(producer.send(message));
            }
        }
        JSONArray answers = new JSONArray();
        for (SendResult result : results) {
            answers.add(fields(result));
        }
        JSONObject answer = new JSONObject();
        answer.put("results", answers);
        return answer;
    }

    /** Started once for each way to compress: that takes longer than to send. */
    private DefaultMQProducer producer(String compression) throws Exception {
        DefaultMQProducer producer = producers.get(compression);
        if (producer == null) {
            producer = new DefaultMQProducer(group());
            producer.setNamesrvAddr(nameServer);
            producer.setCompressMsgBodyOverHowmuch(COMPRESS_FROM);
            if (compression != null) {
                producer.setCompressType(CompressionType.of(compression));
            }
            producer.start();
            producers.put(compression, producer);
        }
        return producer;
    }

    private static JSONObject fields(SendResult result) {
        JSONObject one = new JSONObject();
        one.put("msgId", result.getMsgId());
        one.put("offsetMsgId", result.getOffsetMsgId());
        one.put("broker", result.getMessageQueue().getBrokerName());
        one.put("queueId", result.getMessageQueue().getQueueId());
        one.put("queueOffset", result.getQueueOffset());
        one.put("status", result.getSendStatus().name());
        one.put("recallHandle", result.getRecallHandle());
        return one;
    }

    private TransactionMQProducer transactionProducer(
            JSONObject command, LocalTransactionState decision, List<MessageExt> checked) {
        TransactionMQProducer producer = new TransactionMQProducer(command.getString("group"));
        producer.setNamesrvAddr(nameServer);
        producer.setTopics(Collections.singletonList(command.getString("topic")));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                synchronized (checked) {
                    checked.add(message);
                    checked.notifyAll();
                }
                return decision;
            }
        });
        return producer;
    }

    private static LocalTransactionState decision(String name) {
        switch (name) {
            case "COMMIT":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "ROLLBACK":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private JSONObject sendInTransaction(JSONObject command) throws Exception {
        TransactionMQProducer producer = transactionProducer(command, LocalTransactionState.UNKNOW, new ArrayList<>());
        producer.start();
        try {
            JSONArray answers = new JSONArray();
            for (String decision : command.getJSONArray("decisions").toList(String.class)) {
                Message message = message(command.getString("topic"), command.getJSONObject("message"));
                answers.add(fields(producer.sendMessageInTransaction(message, decision(decision))));
            }
            JSONObject answer = new JSONObject();
            answer.put("results", answers);
            return answer;
        } finally {
            producer.shutdown();
        }
    }

    private JSONObject answerChecks(JSONObject command) throws Exception {
        List<MessageExt> checked = new ArrayList<>();
        int count = command.getIntValue("count");
        TransactionMQProducer producer = transactionProducer(command, decision(command.getString("decision")), checked);
        producer.start();
        try {
            long end = System.nanoTime() + CONSUME_NANOS;
            synchronized (checked) {
                while (checked.size() < count && System.nanoTime() < end) {
                    checked.wait(100);
                }
            }
            Thread.sleep(300); // the answer is sent after the check, one-way
            JSONArray ids = new JSONArray();
            synchronized (checked) {
                for (MessageExt message : checked) {
                    ids.add(MessageClientIDSetter.getUniqID(message));
                }
            }
            JSONObject answer = new JSONObject();
            answer.put("checked", ids);
            return answer;
        } finally {
            producer.shutdown();
        }
    }

    private JSONObject recall(JSONObject command) throws Exception {
        JSONObject answer = new JSONObject();
        answer.put("msgId", producer(null).recallMessage(command.getString("topic"), command.getString("handle")));
        return answer;
    }

    /** As the operator's tool does it, which prints what it does. */
    private JSONObject staticTopic(JSONObject command) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        try {
            System.setProperty("rocketmq.namesrv.addr", nameServer);
            System.setProperty("java.io.tmpdir", System.getProperty("user.dir")); // it keeps what was before there
            String queues = command.getString("queues");
            SubCommand tool = queues == null ? new RemappingStaticTopicSubCommand() : new UpdateStaticTopicSubCommand();
            List<String> arguments = new ArrayList<>();
            Collections.addAll(arguments, "-t", command.getString("topic"), "-b", command.getString("brokers"));
            if (queues != null) {
                Collections.addAll(arguments, "-qn", queues);
            }
            Options options = tool.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            tool.execute(new DefaultParser().parse(options, arguments.toArray(new String[0])), options, null);
            return new JSONObject();
        } finally {
            System.setOut(answers);
        }
    }

    private JSONObject traces(JSONObject command) throws Exception {
        JSONObject answer = new JSONObject();
        StringBuilder again = new StringBuilder();
        JSONArray read = new JSONArray();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(command.getString("data"))) {
            JSONObject fields = new JSONObject();
            fields.put("type", context.getTraceType().name());
            fields.put("group", context.getGroupName());
            fields.put("id", context.getTraceBeans().get(0).getMsgId());
            fields.put("topic", context.getTraceBeans().get(0).getTopic());
            fields.put("success", context.isSuccess());
            read.add(fields);
            context.setAccessChannel(AccessChannel.LOCAL); // the decoder leaves it out
            again.append(TraceDataEncoder.encoderFromContextBean(context).getTransData());
        }
        answer.put("read", read);
        answer.put("again", again.toString());
        if (command.getString("topic") == null) {
            return answer;
        }
        PrintStream answers = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        try {
            System.setProperty("rocketmq.namesrv.addr", nameServer);
            SubCommand tool = new QueryMsgTraceByIdSubCommand();
            String[] arguments = {"-i", command.getString("id"), "-t", command.getString("topic")};
            Options options = tool.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            tool.execute(new DefaultParser().parse(options, arguments), options, null);
        } finally {
            System.setOut(answers);
        }
        answer.put("printed", printed.toString("UTF-8"));
        return answer;
    }

    /** A group that fails on every message: those with the tag "dead" are dead letters at once, others tried again. */
    private JSONObject consumeAndFail(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(command.getString("topic"), "*");
        CountDownLatch failures = new CountDownLatch(command.getIntValue("count"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume("dead".equals(messages.get(0).getTags()) ? -1 : 1);
            failures.countDown();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        try {
            JSONObject answer = new JSONObject();
            answer.put("done", failures.await(60, TimeUnit.SECONDS));
            Thread.sleep(500); // the last failure is reported to the broker
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.getString("tags") != null) {
            message.setTags(given.getString("tags"));
        }
        if (given.getJSONArray("keys") != null) {
            message.setKeys(given.getJSONArray("keys").toList(String.class));
        }
        if (given.getInteger("flag") != null) {
            message.setFlag(given.getInteger("flag"));
        }
        if (given.getInteger("delayLevel") != null) {
            message.setDelayTimeLevel(given.getInteger("delayLevel"));
        }
        if (given.getLong("deliverAtMs") != null) {
            message.setDeliverTimeMs(given.getLong("deliverAtMs"));
        }
        if (given.getString("shardingKey") != null) {
            org.apache.rocketmq.common.message.MessageAccessor.putProperty(
                message, "__SHARDINGKEY", given.getString("shardingKey"));
        }
        JSONObject properties = given.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) {
                message.putUserProperty(name, properties.getString(name));
            }
        }
        return message;
    }

    private JSONObject consume(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        int count = command.getIntValue("count");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group());
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.getString("filter") != null) {
            consumer.setSubExpressionForAssign(topic, command.getString("filter"));
        }
        consumer.start();
        try {
            consumer.assign(consumer.fetchMessageQueues(topic));
            JSONArray messages = new JSONArray();
            long begin = System.nanoTime();
            while (messages.size() < count && System.nanoTime() - begin < CONSUME_NANOS) {
                for (MessageExt message : consumer.poll(500)) {
                    messages.add(fields(message));
                }
            }
            JSONObject answer = new JSONObject();
            answer.put("messages", messages);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    private JSONObject count(String topic) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group());
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            consumer.assign(consumer.fetchMessageQueues(topic));
            Map<String, Integer> keys = new HashMap<>();
            long heard = System.nanoTime();
            while (System.nanoTime() - heard < QUIET_NANOS) {
                for (MessageExt message : consumer.poll(500)) {
                    keys.merge(message.getKeys(), 1, Integer::sum);
                    heard = System.nanoTime();
                }
            }
            JSONObject answer = new JSONObject();
            answer.put("keys", keys);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    private static JSONObject fields(MessageExt message) {
        JSONObject fields = new JSONObject();
        fields.put("brokerName", message.getBrokerName());
        fields.put("queueId", message.getQueueId());
        fields.put("storeSize", message.getStoreSize());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", address(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", address(message.getStoreHost()));
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        fields.put("commitLogOffset", message.getCommitLogOffset());
        fields.put("bodyCRC", message.getBodyCRC());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("topic", message.getTopic());
        fields.put("flag", message.getFlag());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("shardingKey", message.getProperty("__SHARDINGKEY"));
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        Map<String, String> properties = new HashMap<>(message.getProperties());
        properties.remove("MIN_OFFSET"); // the consumer itself adds these two to what it received
        properties.remove("MAX_OFFSET");
        fields.put("properties", properties);
        fields.put("uniqueId", MessageClientIDSetter.getUniqID(message));
        return fields;
    }

    private static String address(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }

    private JSONObject queuesOfKeys(JSONObject command) throws Exception {
        List<MessageQueue> queues = producer(null).fetchPublishMessageQueues(command.getString("topic"));
        JSONArray chosen = new JSONArray();
        for (String key : command.getJSONArray("keys").toList(String.class)) {
            MessageQueue queue = new SelectMessageQueueByHash().select(queues, null, key);
            chosen.add(queue.getBrokerName() + "/" + queue.getQueueId());
        }
        JSONObject answer = new JSONObject();
        answer.put("queues", chosen);
        return answer;
    }

    private String group() {
        return "interop-" + ProcessHandle.current().pid() + "-" + groups++;
    }
}
