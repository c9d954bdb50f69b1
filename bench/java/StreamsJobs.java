import java.io.File;
import java.lang.reflect.Field;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.streams.client.StreamBuilder;
import org.apache.rocketmq.streams.client.strategy.WindowStrategy;
import org.apache.rocketmq.streams.client.transform.DataStream;
import org.apache.rocketmq.streams.client.transform.window.Time;
import org.apache.rocketmq.streams.client.transform.window.TumblingWindow;
import org.apache.rocketmq.streams.common.datatype.DataType;
import org.apache.rocketmq.streams.common.datatype.JavaBeanDataType;
import org.apache.rocketmq.streams.common.utils.DataTypeUtil;

/**
 * Jobs of RocketMQ Streams 1.0.1-preview, as a peer of `python -m bench.peers`.
 *
 * <p>StreamsJobs sums|patterns NAME_SERVER SOURCE SINK GROUP FILE: the file has a pattern in each line. It runs until it is
 * killed.
 */
public class StreamsJobs {
    /** It looks into the classes of Java by reflection, which Java 17 refuses. The state of its windows needs its own. */
    private static class Beans extends JavaBeanDataType {
        @Override
        public boolean matchClass(Class type) {
            return !type.getModule().isNamed() && super.matchClass(type);
        }

        @Override
        public DataType create() {
            return new Beans();
        }
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    public static void main(String[] given) throws Exception {
        // It casts the class loader of threads to one that Java has had until version 8.
        List<URL> urls = new ArrayList<>();
        for (String each : System.getProperty("java.class.path").split(File.pathSeparator)) {
            urls.add(new File(each).toURI().toURL());
        }
        ClassLoader loader = new URLClassLoader(urls.toArray(new URL[0]), StreamsJobs.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        Field types = DataTypeUtil.class.getDeclaredField("dataTypes");
        types.setAccessible(true);
        ((List<DataType>) types.get(null)).replaceAll(each -> each.getClass() == JavaBeanDataType.class ? new Beans() : each);
        DataStream events = StreamBuilder.dataStream("bench", given[4]).fromRocketmq(given[2], given[4], true, given[1]);
        if (given[0].equals("sums")) {
            events.window(TumblingWindow.of(Time.seconds(10)))
                    .groupBy("key")
                    .setTimeField("time_ms")
                    .waterMark(5)
                    .setMaxMsgGap(10L)
                    .count("count")
                    .sum("amount", "sum")
                    .setLocalStorageOnly(true)
                    .toDataSteam()
                    .toRocketmq(given[3], given[4] + "_sink", given[1])
                    .with(WindowStrategy.highPerformance())
                    .start();
        } else {
            StringBuilder expression = new StringBuilder();
            for (String pattern : Files.readAllLines(Path.of(given[5]))) {
                expression.append(expression.length() == 0 ? "" : "|").append("(text,regex,'").append(pattern).append("')");
            }
            events.filterByExpression(expression.toString()).toRocketmq(given[3], given[4] + "_sink", given[1]).start();
        }
    }
}
