import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.util.KafkaBasedLog;
import org.apache.kafka.connect.util.TopicAdmin;

/**
 * Connect's own way to read a topic to its end: bootstrap servers and topic in, for each of two reads one line
 * "seconds records keys" out. The first read has a cold JVM, the second a warm one.
 */
public class LogPeer {
    public static void main(String[] arguments) throws Exception {
        for (int read = 0; read < 2; read++) {
            Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
            Map<String, Object> producer = new HashMap<>(common);
            producer.put("key.serializer", ByteArraySerializer.class.getName());
            producer.put("value.serializer", ByteArraySerializer.class.getName());
            Map<String, Object> consumer = new HashMap<>(common);
            consumer.put("key.deserializer", ByteArrayDeserializer.class.getName());
            consumer.put("value.deserializer", ByteArrayDeserializer.class.getName());
            consumer.put("isolation.level", "read_committed");
            Map<Bytes, byte[]> state = new HashMap<>();
            long[] records = {0};
            TopicAdmin admin = new TopicAdmin(new HashMap<>(common));
            long began = System.nanoTime();
            KafkaBasedLog<byte[], byte[]> log = new KafkaBasedLog<byte[], byte[]>(
                arguments[1], producer, consumer, () -> admin,
                (error, record) -> {
                    if (error != null) throw new RuntimeException(error);
                    records[0]++;
                    state.put(Bytes.wrap(record.key()), record.value());
                }, Time.SYSTEM, null);
            log.start();
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println(seconds + " " + records[0] + " " + state.size());
            log.stop();
            admin.close();
        }
    }
}
