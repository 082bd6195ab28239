import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's producer with its default partitioner. Bootstrap servers and topic are the arguments; a count and as many keys
 * come in, and for each key goes out the number of the partition that its record was appended to.
 */
public class Partitions {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0]);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            for (int left = in.readInt(); left > 0; left--) {
                byte[] key = in.readNBytes(in.readInt());
                sent.add(producer.send(new ProducerRecord<>(arguments[1], key, new byte[0])));
            }
        }
        DataOutputStream out = new DataOutputStream(System.out);
        for (Future<RecordMetadata> record : sent) out.writeInt(record.get().partition());
        out.flush();
    }
}
